"""Where the time of each worker went: computing, waiting, encoding, exchanging, fetching data.

On the server plane the trace says how long a worker waited for others. Under a collective it cannot:
every rank's call lasts until the last one has come. There the two are told apart without
synchronised clocks, as DeepSpeed and TraceLens do (FORMULAS, "Wait and transfer"):

    transfer_k = min_i d_ik        wait_ik = d_ik - transfer_k

with d_ik the duration of step k's collective as worker i saw it, less its own encoding: the last to come
waits for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.runs import RankTrace, Run
from paceline.trace import Step

PHASES = ("compute", "wait", "exchange", "data", "other", "coding")


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowTimes:
    """One window of one worker. Before ``start_s`` it waited ``gate_s``, then pulled; the rest follows.

    ``compute_s``: forward and backward, of which ``forward_s`` (all micro-batches' together).
    ``coding_s``: encoding and decoding gradients. ``wait_s``: for other workers, after its own work.
    ``exchange_s``: moving, reducing, applying. ``end_s``: when its push was decided.
    """

    start_s: float
    gate_s: float
    pull_s: float
    data_s: float
    compute_s: float
    wait_s: float
    exchange_s: float
    end_s: float
    forward_s: float
    coding_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Phases:
    """Seconds of one worker by what it did. ``other``: the script's own code between windows."""

    compute: float
    wait: float
    exchange: float
    data: float
    other: float
    coding: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.compute + self.wait + self.exchange + self.data + self.other + self.coding


def windows(run: Run) -> dict[int, list[WindowTimes]]:
    """Every worker's windows, by rank, with waiting and transfer told apart."""
    transfers = _transfers(run)
    return {rank.rank: [_window(step, transfers) for step in rank.steps] for rank in run.ranks}


def step_end_s(step: Step) -> float:
    """When the push of this window was decided."""
    work_s = step.data_s + step.forward_s + step.backward_s
    return step.time_s + work_s + step.wait_s + step.exchange_s


def coding_s(step: Step) -> float:
    """How much of the ``exchange_s`` of this window was encoding and decoding."""
    return min(step.coding_s, step.exchange_s)


def phases_of(rank: RankTrace, own: Sequence[WindowTimes]) -> Phases:
    """Where the time of ``rank``'s passes went; ``own``: its windows.

    From a window's end to the end of its pass a worker without batches waits for the others.
    """
    compute = sum(window.compute_s for window in own)
    data = sum(window.data_s for window in own)
    exchange = sum(window.pull_s + window.exchange_s for window in own)
    coding = sum(window.coding_s for window in own)
    wait = sum(window.gate_s + window.wait_s for window in own) + _tails_s(rank, own)
    other = max(0.0, _span_s(rank, own) - (compute + data + exchange + wait + coding))
    return Phases(
        compute=compute, wait=wait, exchange=exchange, data=data, other=other, coding=coding
    )


def shares(parts: Sequence[Phases]) -> dict[str, float]:
    """The share of each phase in the time of all workers together; they add up to 1."""
    total = sum(part.total for part in parts)
    return {name: sum(getattr(part, name) for part in parts) / (total or 1.0) for name in PHASES}


def _transfers(run: Run) -> Mapping[int, float]:
    """Per clock the shortest collective any worker saw; empty on the other planes."""
    shortest: dict[int, float] = {}
    if run.setup.topology != "allreduce":
        return shortest
    for rank in run.ranks:
        for step in rank.steps:
            rest_s = step.exchange_s - coding_s(step)
            shortest[step.clock] = min(shortest.get(step.clock, rest_s), rest_s)
    return shortest


def _window(step: Step, transfers: Mapping[int, float]) -> WindowTimes:
    rest_s = step.exchange_s - coding_s(step)
    transfer_s = transfers.get(step.clock, rest_s)
    return WindowTimes(
        start_s=step.time_s,
        gate_s=step.gate_s,
        pull_s=step.pull_s,
        data_s=step.data_s,
        compute_s=step.forward_s + step.backward_s,
        wait_s=step.wait_s + rest_s - transfer_s,
        exchange_s=transfer_s,
        end_s=step_end_s(step),
        forward_s=step.forward_s,
        coding_s=coding_s(step),
    )


def _tails_s(rank: RankTrace, own: Sequence[WindowTimes]) -> float:
    total_s = 0.0
    for one in rank.passes:
        ends = [w.end_s for w in own if one.started_s <= w.end_s <= one.time_s]
        total_s += one.time_s - max(ends, default=one.started_s)
    return total_s


def _span_s(rank: RankTrace, own: Sequence[WindowTimes]) -> float:
    """Time inside passes; the windows of a pass that has not ended count as far as they go."""
    closed_s = sum(one.time_s - one.started_s for one in rank.passes)
    last = rank.passes[-1].time_s if rank.passes else float("-inf")
    running = [window for window in own if window.start_s > last]
    if not running:
        return closed_s
    first = running[0]
    return closed_s + running[-1].end_s - (first.start_s - first.gate_s - first.pull_s)
