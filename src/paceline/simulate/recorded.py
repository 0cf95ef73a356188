"""Step times of a run that was recorded, once more: what if the same workers ran another strategy?

Steps are taken in the order in which they were recorded, round and round: a circular bootstrap of one
block (Politis and Romano 1992). That keeps bursts, and who was slow when; steps drawn one by one would
break both up, and of a short run they would hold too many rare delays or too few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.errors import UsageError
from paceline.runs import RankTrace, Run
from paceline.simulate.draws import Floats, step_draws
from paceline.simulate.windows import Wholes
from paceline.trace import Step


@dataclass(frozen=True, kw_only=True)
class RecordedTimes:
    """``own_s[i]``: worker i's recorded times of one micro-batch, in seconds. ``seed``: draws the step
    from which they are taken; 0 is the first."""

    own_s: tuple[Floats, ...]
    seed: int = 0
    recorded: int = 0
    """How many of the workers were there; 0: all. The others begin somewhere of their own."""

    @property
    def count(self) -> int:
        """Workers."""
        return len(self.own_s)

    @property
    def regular_s(self) -> float:
        """The median over all workers' steps."""
        return float(np.median(np.concatenate(self.own_s)))

    def of(self, workers: int) -> RecordedTimes:
        """As many workers: those that were not there take the times of the recorded ones in turn, but
        not at the same time as these."""
        own_s = tuple(self.own_s[rank % self.count] for rank in range(workers))
        return RecordedTimes(own_s=own_s, seed=self.seed, recorded=self.count)

    def step_times_s(self, steps: int) -> Floats:
        """Shape (count, steps)."""
        return np.stack([self._row(rank, steps) for rank in range(self.count)])

    def order(self, rank: int, steps: int) -> Wholes:
        """Which recorded window each of the first ``steps`` of ``rank`` is like."""
        return (self._first(rank) + np.arange(steps)) % len(self.own_s[rank])

    def _row(self, rank: int, steps: int) -> Floats:
        return self.own_s[rank][self.order(rank, steps)]

    def _first(self, rank: int) -> int:
        """The recorded step with which ``rank`` begins: those that were there begin together."""
        was_there = rank < (self.recorded or self.count)
        if was_there and self.seed == 0:
            return 0
        chance = float(step_draws(self.seed, 0 if was_there else rank, 0)[1][0])
        return int(chance * len(self.own_s[rank]))


def counted(rank: RankTrace) -> list[Step]:
    """The windows that count: without the first, in which much happens for once."""
    return [step for step in rank.steps[1:] if step.batches]


def recorded_times(run: Run, *, seed: int = 0) -> RecordedTimes:
    """The computing times (data, forward, backward) of the ``run``'s workers, without each one's first.

    Raises UsageError if a worker has recorded fewer than three windows.
    """
    own_s = []
    for rank in run.ranks:
        spent = [
            (step.data_s + step.forward_s + step.backward_s) / step.batches
            for step in counted(rank)
        ]
        if len(spent) < 2:
            raise UsageError(
                f"{run.directory}: rank {rank.rank} recorded {len(rank.steps)} windows, too few to "
                "draw step times from. Give a longer run."
            )
        own_s.append(np.array(spent))
    return RecordedTimes(own_s=tuple(own_s), seed=seed)
