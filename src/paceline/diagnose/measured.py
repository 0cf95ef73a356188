"""The workers' windows side by side, each divided into its own work, waiting and transfer.

No clock of one worker is compared with another's (FORMULAS, "Wait and transfer without synchronised
clocks"; DeepSpeed's straggler logs, TraceLens). On the collective plane the duration d_ik of window
k's collective, as worker i saw it, lasts until the last worker has come:

    transfer_k = min_i d_ik        wait_ik = d_ik - transfer_k

so the late one has the *shortest* collective. d_ik ends where the last bucket's sum is there
(``Buckets.done_s``); what follows is the worker's own optimizer, and delays its next window. On the
server plane the server says how long a push waited, and moving it is the worker's own: its link.

Replicas (local SGD) go on alone for several windows: there a row is a round of them, from one exchange
to the next, in which the worker itself saw how long it waited for the others.

Time in which a worker was ready to run but had no processor is set apart: it says something about the
machine, and nothing about the worker.

This module knows records and arrays. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, nan

import numpy as np
import numpy.typing as npt

from paceline.compare.phases import coding_s, step_end_s
from paceline.diagnose.queueing import without_queueing
from paceline.diagnose.window import Window, rounds_of
from paceline.runs import RankTrace, Run
from paceline.strategies import Strategy, is_dealt, parse_strategy, windows_apart
from paceline.trace import Buckets, Step, Unscheduled

Floats = npt.NDArray[np.float64]

DATA, FORWARD, BACKWARD = "data loading", "forward", "backward"
OPTIMIZER, SCRIPT, LINK = "optimizer", "own code between steps", "link"
CODING = "encoding gradients"
KNOWN = {DATA: "data_s", FORWARD: "forward_s", BACKWARD: "backward_s", SCRIPT: "between_s"}
"""In which field of its record a phase's wait for a processor is."""
PHASES = (DATA, FORWARD, BACKWARD, OPTIMIZER, SCRIPT, LINK, CODING)

REPLICAS = "replicas"
_COLLECTIVE = ("allreduce", REPLICAS)
"""Where one slow link slows everybody's exchange alike."""

WARM_UP_WINDOWS = 2
"""The first windows of a worker allocate memory and start loaders: they say nothing of the rest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Arrays have the shape (windows, workers), seconds; column i is ``ranks[i]``'s.

    ``phases``: each worker's own work by phase, ``queued_s``: what waiting for a processor added to it.
    ``wait_s``: for others. ``transfer_s``: exchanging, which nobody in particular is to blame for.
    ``weight``: samples (or tokens); ``lag``: version lag.
    ``together``: row k is one and the same round of all workers; else merely everybody's k-th window.
    ``hidden_s``: what an exchange lasts longer, at most, than is seen of it, as backward hides that; mean.
    """

    ranks: tuple[int, ...]
    strategy: Strategy
    topology: str
    together: bool
    phases: Mapping[str, Floats]
    queued_s: Floats
    wait_s: Floats
    transfer_s: Floats
    weight: Floats
    lag: Floats
    hidden_s: float = 0.0

    @property
    def windows(self) -> int:
        """How many windows of each worker are compared."""
        return len(self.wait_s)

    @property
    def workers(self) -> int:
        """How many workers are compared."""
        return len(self.ranks)

    @property
    def work_s(self) -> Floats:
        """Each worker's own work on a window, as if a processor had always been free."""
        total: Floats = np.sum(list(self.phases.values()), axis=0)
        return total

    @property
    def own_s(self) -> Floats:
        """What each worker's own work on a window took."""
        return self.work_s + self.queued_s

    def as_scheduled(self) -> Measured:
        """The same as if a processor had always been free."""
        return replace(self, queued_s=np.zeros_like(self.queued_s))

    @property
    def coding_s(self) -> Floats:
        """What encoding and decoding took of each worker's own work."""
        return self.phases.get(CODING, np.zeros_like(self.wait_s))

    @property
    def cycle_s(self) -> float:
        """The mean time from window to window."""
        return float(np.mean(self.own_s + self.wait_s + self.transfer_s))


def measured(run: Run) -> Measured:
    """The windows that every worker of ``run`` recorded, without the first ones; perhaps none."""
    strategy, topology = parse_strategy(run.setup.strategy), run.setup.topology
    together = topology == "allreduce" or (is_dealt(strategy) and windows_apart(strategy) < inf)
    own = {rank.rank: _windows(rank) for rank in run.ranks if rank.setup is not None}
    if topology == REPLICAS and together:
        own = {
            r.rank: rounds_of(own[r.rank], r, step=OPTIMIZER) for r in run.ranks if r.rank in own
        }
    rows = _side_by_side(list(own.values()), together=together)
    wait_s, exchange_s = _table(rows, "wait_s", own), _table(rows, "exchange_s", own)
    phases = {
        name: np.array([[w.phases[name] for w in row] for row in rows]).reshape(-1, len(own))
        for name in PHASES
    }
    found = Measured(
        ranks=tuple(own), strategy=strategy, topology=topology, together=together, phases=phases,
        queued_s=np.zeros_like(wait_s), wait_s=wait_s, transfer_s=exchange_s,
        weight=_table(rows, "weight", own), lag=_table(rows, "lag", own),
        hidden_s=_hidden_s(run) if topology == "allreduce" else 0.0,
    )  # fmt: skip
    if topology in _COLLECTIVE:
        found = _waits_apart(found)
    if topology == "allreduce":
        found = _without_waiting_inside(found, _table(rows, "ready_s", own))
    found = _queueing_apart(found, rows)
    return found if topology in _COLLECTIVE else _links_apart(found)


def _hidden_s(run: Run) -> float:
    """The first bucket is under way as soon as it is ready, unless all are to be encoded first."""
    if any(step.coding_s for rank in run.ranks for step in rank.steps):
        return 0.0
    ahead = [
        max(b.ready_s) - min(b.ready_s) for rank in run.ranks for b in rank.buckets if b.ready_s
    ]
    return float(np.median(ahead)) if ahead else 0.0


def _waits_apart(found: Measured) -> Measured:
    """Of a collective's duration the shortest of its row is the transfer, the rest waiting."""
    least_s = _least_of_rows(found.transfer_s)
    return replace(found, transfer_s=least_s, wait_s=found.wait_s + found.transfer_s - least_s)


def _links_apart(found: Measured) -> Measured:
    """What a worker's exchange takes beyond the shortest of its row is its link."""
    least_s = _least_of_rows(found.transfer_s)
    phases = {**found.phases, LINK: found.transfer_s - least_s}
    return replace(found, phases=phases, transfer_s=least_s)


def _least_of_rows(times_s: Floats) -> Floats:
    if not len(times_s):
        return times_s
    return np.broadcast_to(times_s.min(axis=1, keepdims=True), times_s.shape).copy()


def _queueing_apart(found: Measured, rows: Sequence[Sequence[Window]]) -> Measured:
    """What waiting for a processor added to each phase, as ``queued_s`` and not as that phase.

    Where it is known only roughly when it was, by how much longer than usual what may have been
    interrupted was (:mod:`.queueing`).
    """
    if not any(window.queued or window.queued_before for row in rows for window in row):
        return found
    phases = dict(found.phases)
    moving_s = _waits(rows, "exchange_s") + _waits(rows, "between_s")
    for name, field in KNOWN.items():
        phases[name] = np.maximum(0.0, phases[name] - _waits(rows, field))
    moving_s -= found.phases[SCRIPT] - phases[SCRIPT]
    phases |= without_queueing({name: phases[name] for name in KNOWN}, _waits(rows, "somewhere_s"))
    before_s = _waits(rows, "exchange_s", "queued_before")
    phases |= without_queueing({OPTIMIZER: phases[OPTIMIZER]}, before_s)
    transfer_s = found.transfer_s
    if found.topology not in _COLLECTIVE:
        transfer_s = without_queueing({"": transfer_s}, moving_s)[""]
    apart = replace(found, phases=phases, transfer_s=transfer_s)
    queued_s = found.own_s + found.transfer_s - apart.own_s - transfer_s
    return replace(apart, queued_s=queued_s)


def _waits(rows: Sequence[Sequence[Window]], field: str, which: str = "queued") -> Floats:
    return np.array([[getattr(getattr(w, which), field, 0.0) for w in row] for row in rows])


def _without_waiting_inside(found: Measured, ready_s: Floats) -> Measured:
    """Backward as far as it is the worker's own.

    Backward's wall time is equal on all ranks where they wait for each other inside it; the time until
    the last bucket is ready is equal where the delay comes after it. The one by which the ranks differ
    more is the one that tells (FINDINGS, "Where a slow rank shows").
    """
    wall_s = found.phases[BACKWARD]
    if np.isnan(ready_s).any() or _spread(ready_s) <= _spread(wall_s):
        return found
    backward_s = np.minimum(ready_s, wall_s)
    return replace(
        found,
        phases={**found.phases, BACKWARD: backward_s},
        wait_s=found.wait_s + wall_s - backward_s,
    )


def _spread(times_s: Floats) -> float:
    return float(np.median(np.ptp(times_s, axis=1))) if len(times_s) else 0.0


def _windows(rank: RankTrace) -> list[Window]:
    """The rank's windows but the first ones, which have no predecessor or are not typical."""
    buckets = {one.clock: one for one in rank.buckets}
    queued = {one.clock: one for one in rank.unscheduled}
    ends_s = [one.time_s for one in rank.passes]
    return [
        _window(step, before, buckets, queued, ends_s)
        for before, step in pairwise(rank.steps[WARM_UP_WINDOWS - 1 :])
    ]


def _window(
    step: Step,
    before: Step,
    buckets: Mapping[int, Buckets],
    queued: Mapping[int, Unscheduled],
    pass_ends_s: Sequence[float],
) -> Window:
    own = buckets.get(step.clock)
    opened_s = step.time_s - step.gate_s - step.pull_s
    ended_s = step_end_s(before)
    after_s = _after_the_sum_s(step, own)
    new_pass = any(ended_s <= end_s <= step.time_s for end_s in pass_ends_s)
    return Window(
        clock=step.clock,
        phases={
            DATA: step.data_s,
            FORWARD: step.forward_s,
            BACKWARD: step.backward_s,
            OPTIMIZER: _after_the_sum_s(before, buckets.get(before.clock)),
            SCRIPT: 0.0 if new_pass else max(0.0, opened_s - ended_s),
            LINK: 0.0,
            CODING: coding_s(step),
        },
        ready_s=max(own.ready_s) if own is not None and own.ready_s else nan,
        wait_s=step.gate_s + step.wait_s,
        exchange_s=step.pull_s + max(0.0, step.exchange_s - after_s - coding_s(step)),
        weight=step.weight,
        lag=step.lag,
        queued=queued.get(step.clock),
        queued_before=queued.get(before.clock),
    )


def _after_the_sum_s(step: Step, own: Buckets | None) -> float:
    """What a collective's exchange lasted after the last sum was there: norm and optimizer."""
    if own is None or not own.done_s:
        return 0.0
    rest_s = step_end_s(step) - (own.time_s + max(own.done_s))
    return min(max(rest_s, 0.0), step.exchange_s)


def _side_by_side(workers: Sequence[list[Window]], *, together: bool) -> list[list[Window]]:
    """Rows of one window of each worker: those of the same clock, or simply everybody's k-th."""
    if not together:
        return [list(row) for row in zip(*workers, strict=False)]
    by_clock = [{window.clock: window for window in own} for own in workers]
    shared = set(by_clock[0]).intersection(*by_clock[1:])
    return [[own[clock] for own in by_clock] for clock in sorted(shared)]


def _table(rows: list[list[Window]], field: str, workers: Sized) -> Floats:
    values = [[float(getattr(window, field)) for window in row] for row in rows]
    return np.array(values, dtype=np.float64).reshape(-1, len(workers))
