"""A window's gradients of all members of a group, summed in the region that the leader pushes from.

Each member's region is its own; while backward still runs they are added up, so that the leader's holds
the sum when the window is complete. What is pushed, and what becomes of it, is the plane's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from paceline.gradients.layout import FlatLayout
from paceline.server.seats import BROKEN
from paceline.transport.shared_memory import Region
from paceline.worker.circle import Circle
from paceline.worker.plane import BucketTimes, Contribution
from paceline.worker.reducer import Reducer, Sums
from paceline.worker.shared_gradients import Judged
from paceline.worker.vote import Tally, Vote, ballot, ballot_size, tally


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupWindow:
    """What all members did in a window. ``weight``: of their samples, ``bad``: why the sum is nobody's
    gradient, "" if it is one; ``left``: how many members take no more batches; ``total``: batches of
    the pass, if a member has met the end of its stream."""

    weight: float
    bad: str
    stop: bool
    left: int
    total: int | None


class GroupGradients:
    """Implements :class:`paceline.worker.shared_gradients.Gradients`. ``group``: adds up over
    ``circle``'s members, all of whom call :meth:`add_up` once each window."""

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        layout: FlatLayout,
        *,
        group: Sums,
        circle: Circle,
        clock_s: Callable[[], float],
    ) -> None:
        self.region = Region.create(layout.total_bytes)
        self.views = layout.views(self.region.memory)
        self._names = [slot.name for slot in layout.slots]
        self._parameters = parameters
        self._circle = circle
        self._reducer = Reducer(
            group, layout, parameters,
            ballot_size=_EXTRA + circle.size + ballot_size(circle.size, len(parameters)),
            clock_s=clock_s, ballot_alone=True, gradients=self.region.memory,
        )  # fmt: skip
        self._buffer = self._reducer.buffer
        self._judged = self._nothing()
        self._times: BucketTimes | None = None

    @property
    def vectors(self) -> Sequence[torch.Tensor]:
        return self._buffer.vectors

    @property
    def group_bytes(self) -> int:
        """What a member brings to each sum."""
        return self._reducer.sent_bytes

    def show_parameters(self) -> None:
        for view, parameter in zip(self.views, self._parameters, strict=True):
            view.copy_(parameter.detach())

    def before_backward(self, *, last: bool) -> None:
        self._reducer.before_backward(last=last)

    def add_up(self, contribution: Contribution, *, left: bool) -> GroupWindow:
        """This member's part of the window is over: what all did, their sum in the region."""
        if contribution.weight == 0:
            self._buffer.discard()
        broken = contribution.weight == 0 and self._buffer.ready > 0
        self._buffer.flush(fill_unused=True)
        circle = self._circle
        vote = Vote(
            weight=contribution.weight, batches=0, bad=self._buffer.first_bad(),
            stop=contribution.stop, used=self._buffer.used(), broken=broken,
        )  # fmt: skip
        numbers = ballot(vote, rank=circle.place, world_size=circle.size)
        self._reducer.send([float(left), *self._totals(contribution.total), *numbers])
        reduced = self._reducer.finish()
        self._times = reduced.times
        totals = [round(one) - 1 for one in reduced.ballots[_EXTRA : _EXTRA + circle.size] if one]
        counted = tally(reduced.ballots[_EXTRA + circle.size :], world_size=circle.size)
        bad = self._blame(counted, reduced.norm)
        self._judged = Judged(used=bytes(counted.used), bad=bad, norm=reduced.norm)
        return GroupWindow(
            weight=counted.weight, bad=bad, stop=counted.stop, left=round(reduced.ballots[0]),
            total=min(totals, default=None),
        )  # fmt: skip

    def complete(self, *, empty: bool, fill_unused: bool) -> Judged:
        """The group's, added up before; nothing if ``empty``."""
        return self._nothing() if empty else self._judged

    def clear(self) -> None:
        self._buffer.clear()

    def times(self) -> BucketTimes | None:
        return self._times

    def close(self) -> None:
        self._buffer.close()
        self.region.close()

    def _nothing(self) -> Judged:
        return Judged(used=bytes(len(self._names)), bad="", norm=0.0)

    def _totals(self, total: int | None) -> list[float]:
        """In this member's slot, one more than ``total``; 0 as long as it is unknown."""
        slots = [0.0] * self._circle.size
        slots[self._circle.place] = 0.0 if total is None else float(total + 1)
        return slots

    def _blame(self, counted: Tally, norm: float) -> str:
        if counted.broken:
            return BROKEN
        if counted.bad:
            place, parameter = counted.bad[0]
            return f"{self._names[parameter]} (rank {self._circle.ranks[place]})"
        if not math.isfinite(norm):
            views = zip(self._names, self.views, strict=True)
            over = (name for name, view in views if not bool(torch.isfinite(view).all()))
            return next((f"{name} (the group's sum overflowed)" for name in over), "")
        return ""


_EXTRA = 1
"""Numbers of a ballot before the totals: who has left."""
