"""Step times of a run that was recorded, drawn again: what if the same workers ran another strategy?

A bootstrap (Efron 1979): each step of a worker takes as long as one of its recorded steps, drawn at
random. Bursts are broken up by that; who is slow, and how often, is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.errors import UsageError
from paceline.runs import Run
from paceline.simulate.draws import BLOCK_STEPS, Floats, step_draws


@dataclass(frozen=True, kw_only=True)
class RecordedTimes:
    """``own_s[i]``: worker i's recorded times of one micro-batch, in seconds."""

    own_s: tuple[Floats, ...]
    seed: int = 0

    @property
    def count(self) -> int:
        """Workers."""
        return len(self.own_s)

    @property
    def regular_s(self) -> float:
        """The median over all workers' steps."""
        return float(np.median(np.concatenate(self.own_s)))

    def of(self, workers: int) -> RecordedTimes:
        """As many workers: those that were not there take the times of the recorded ones in turn.

        What one draws says nothing of what another does, also where both draw from the same.
        """
        own_s = tuple(self.own_s[rank % self.count] for rank in range(workers))
        return RecordedTimes(own_s=own_s, seed=self.seed)

    def step_times_s(self, steps: int) -> Floats:
        """Shape (count, steps)."""
        return np.stack([self._row(rank, steps) for rank in range(self.count)])

    def _row(self, rank: int, steps: int) -> Floats:
        own_s = self.own_s[rank]
        blocks = range(-(-steps // BLOCK_STEPS))
        chances = [step_draws(self.seed, rank, block)[1] for block in blocks]
        chance = np.concatenate([np.empty(0), *chances])[:steps]
        return own_s[(chance * len(own_s)).astype(np.int64)]


def recorded_times(run: Run, *, seed: int = 0) -> RecordedTimes:
    """The computing times (data, forward, backward) of the ``run``'s workers, without each one's first.

    Raises UsageError if a worker has recorded fewer than three windows.
    """
    own_s = []
    for rank in run.ranks:
        spent = [
            (step.data_s + step.forward_s + step.backward_s) / step.batches
            for step in rank.steps[1:]
            if step.batches
        ]
        if len(spent) < 2:
            raise UsageError(
                f"{run.directory}: rank {rank.rank} recorded {len(rank.steps)} windows, too few to "
                "draw step times from. Give a longer run."
            )
        own_s.append(np.array(spent))
    return RecordedTimes(own_s=tuple(own_s), seed=seed)
