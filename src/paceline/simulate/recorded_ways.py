"""What exchanges took in a run that was recorded, beside the step times that :mod:`.recorded` takes of it.

A run through a server says of each window what its pull and its push took without any waiting; one by
all-reduce says of each round what it took the last to come, which waited for nobody (FORMULAS, "Wait and
transfer"). Neither says anything of the other: there exchanges are taken to cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from paceline.compare.units import duration
from paceline.runs import Run
from paceline.simulate.draws import Floats
from paceline.simulate.recorded import RecordedTimes, counted
from paceline.trace import Step


@dataclass(frozen=True, kw_only=True)
class RecordedWays:
    """``push_s[i]``, ``pull_s[i]``: of worker i's windows; ``rounds_s``: all-reduces; all in the order
    of ``times``. ``over_network``: the run was by collectives; ``alone``: it was of one worker."""

    times: RecordedTimes
    push_s: tuple[Floats, ...]
    pull_s: tuple[Floats, ...]
    rounds_s: Floats
    over_network: bool
    alone: bool = False
    serving_s: float = 0.0
    shards: int = 1

    def in_parts(self, parts: int) -> RecordedWays:
        """The same, if an exchange's time were all transfer: no latency is known."""
        return replace(self, rounds_s=self.rounds_s / parts)

    def push_times_s(self, *, workers: int, windows: int) -> Floats:
        """Shape (windows, workers)."""
        return self._ways_s(self.push_s, workers, windows)

    def pull_times_s(self, *, workers: int, windows: int) -> Floats:
        """Shape (windows, workers)."""
        return self._ways_s(self.pull_s, workers, windows)

    def all_reduce_times_s(self, *, workers: int, rounds: int) -> Floats:
        """Shape (rounds,). Of as many workers as were recorded, however many there are."""
        return self.rounds_s[self.times.order(0, rounds) % len(self.rounds_s)]

    def _ways_s(self, own_s: tuple[Floats, ...], workers: int, windows: int) -> Floats:
        rows = [own_s[rank % len(own_s)] for rank in range(workers)]
        return np.stack(
            [row[self.times.order(rank, windows)] for rank, row in enumerate(rows)], axis=1
        )


def recorded_ways(run: Run, times: RecordedTimes) -> RecordedWays:
    """The exchanges of the ``run`` whose ``times`` these are."""
    collective = run.setup.topology in ("allreduce", "replicas")
    push_s = _each(run, lambda step: 0.0 if collective else step.exchange_s)
    pull_s = _each(run, lambda step: 0.0 if collective else step.pull_s)
    return RecordedWays(
        times=times,
        push_s=push_s,
        pull_s=pull_s,
        rounds_s=_rounds_s(run) if collective else np.zeros(1),
        over_network=collective,
        alone=run.setup.world_size == 1,
    )


def about_encoding(run: Run) -> str:
    """What is to be said of a ``run`` that sent compressed gradients; "" of any other."""
    spent_s = [step.coding_s for rank in run.ranks for step in counted(rank)]
    if not any(spent_s):
        return ""
    return (
        f"this run sent compressed gradients: of each exchange {duration(float(np.mean(spent_s)))} was "
        "encoding and decoding, and is taken along. What local and diloco send, whole parameters, would "
        "take longer on the link than this run's exchanges: record a run without --compress for them."
    )


def _each(run: Run, what: Callable[[Step], float]) -> tuple[Floats, ...]:
    return tuple(np.array([what(step) for step in counted(rank)]) for rank in run.ranks)


def _rounds_s(run: Run) -> Floats:
    """What each all-reduce took whoever came last; replicas do without after most windows."""
    seen: dict[int, float] = {}
    for rank in run.ranks:
        for step in counted(rank):
            if step.sent_bytes:
                seen[step.clock] = min(seen.get(step.clock, step.exchange_s), step.exchange_s)
    return np.array([seen[clock] for clock in sorted(seen)] or [0.0])
