"""The loss scale of every worker: one for all where pushes are decided in rounds, else each its own.

It is kept here because a worker whose push came too late for a round (backup) does not know what
became of the rounds that it missed. It follows what was decided, nothing else; knows no gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.gradients.precision.loss_scale import LossScale

_ALL = -1


class Scales:
    """``initial``: every worker's first. ``joint``: a round concerns all workers."""

    def __init__(self, initial: LossScale, *, joint: bool) -> None:
        self._initial = initial
        self._joint = joint
        self._scales: dict[int, LossScale] = {}
        self._round = -1

    @property
    def dynamic(self) -> bool:
        """Whether a push that is not finite is an ordinary event."""
        return self._initial.dynamic

    def of(self, rank: int) -> float:
        """The scale of the window that ``rank`` starts now."""
        return self._scales.get(_ALL if self._joint else rank, self._initial).value

    def decided(self, ranks: Sequence[int], clock: int, *, finite: bool) -> None:
        """Pushes of ``ranks``, made at ``clock``, were applied, or refused as not ``finite``.

        A joint round counts once, however many sentences it is told in.
        """
        if not self._joint:
            for rank in ranks:
                self._scales[rank] = self._scales.get(rank, self._initial).after(finite)
        elif clock > self._round:
            self._round = clock
            self._scales[_ALL] = self._scales.get(_ALL, self._initial).after(finite)
