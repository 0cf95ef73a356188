"""Runs that never were, with known causes: what workers would have recorded on either plane.

``fabricated(Case(...))`` is a Run in memory. Timing follows the rules of the plane (rounds that end
when the last has come; or every push on arrival), times carry jitter and hiccups that hit everybody.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from paceline import trace
from paceline.runs import RankTrace, Run
from synthetic_runs import setup, step, write_run

PHASES = ("data", "forward", "backward", "optimizer", "script", "link")
SHARES = {
    "data": 0.05,
    "forward": 0.3,
    "backward": 0.55,
    "optimizer": 0.07,
    "script": 0.03,
    "link": 0.0,
}


@dataclass(frozen=True)
class Case:
    """``faults``: (rank, phase, seconds more in each window). Times: ``step_s`` and what comes on top."""

    workers: int = 4
    plane: str = "allreduce"
    windows: int = 120
    step_s: float = 0.05
    exchange_s: float = 0.004
    jitter: float = 0.1
    hiccup: float = 0.0
    seed: int = 0
    faults: tuple[tuple[int, str, np.ndarray], ...] = ()
    weights: Callable[[np.random.Generator, tuple[int, int]], np.ndarray] | None = None
    weighted_time: bool = False
    changes: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    losses: Callable[[np.random.Generator, int], np.ndarray] | None = None
    lost_share: float = 0.0
    wait_inside_backward: bool = False


def added(rng: np.random.Generator, pattern: str, size_s: float, windows: int) -> np.ndarray:
    """Seconds more in each window."""
    if pattern == "persistent":
        return size_s * rng.uniform(0.9, 1.1, windows)
    extra = np.zeros(windows)
    if pattern == "bursty":
        length = int(windows * rng.uniform(0.15, 0.4))
        start = int(rng.integers(0, windows - length))
        extra[start : start + length] = size_s
        return extra
    extra[rng.random(windows) < rng.uniform(0.08, 0.2)] = size_s
    return extra


def fabricated(case: Case) -> Run:
    """The run of ``case``."""
    rng = np.random.default_rng(case.seed)
    parts, weight = _work(case, rng)
    build = _rounds if case.plane in ("allreduce", "server") else _on_arrival
    steps, buckets = build(case, parts, weight, rng)
    head = setup(
        strategy={"server": "sync:server", "allreduce": "sync:allreduce"}.get(case.plane, case.plane),
        topology="allreduce" if case.plane == "allreduce" else "server", world_size=case.workers,
        **case.changes,
    )  # fmt: skip
    ranks = tuple(
        RankTrace(rank=i, setup=head, steps=tuple(steps[i]), passes=(), metrics=(), notes=(), close=None,
                  buckets=tuple(buckets[i]))
        for i in range(case.workers)
    )  # fmt: skip
    return Run(
        directory=Path("made"), ranks=ranks, decisions=(), server_notes=(), summary=case.summary
    )


def _work(case: Case, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    shape = (case.windows, case.workers)
    own_s = case.step_s * (1.0 + case.jitter * rng.exponential(size=shape))
    own_s[rng.random(shape) < case.hiccup] *= 4.0
    weight = np.full(shape, 32.0) if case.weights is None else case.weights(rng, shape)
    if case.weighted_time:
        own_s = own_s * weight / weight.mean()
    parts = {name: own_s * share for name, share in SHARES.items()}
    for rank, phase, extra_s in case.faults:
        parts[phase][:, rank] += extra_s
    if case.plane != "allreduce":  # the optimizer is the server's
        parts["optimizer"][:] = 0.0
    return parts, weight


def _rounds(case: Case, parts: dict[str, np.ndarray], weight: np.ndarray, rng: Any) -> Any:
    skew = rng.uniform(0, 1e4, case.workers)  # every machine has a clock of its own
    steps: list[list[trace.Step]] = [[] for _ in range(case.workers)]
    buckets: list[list[trace.Buckets]] = [[] for _ in range(case.workers)]
    free = np.zeros(case.workers)
    loss = _losses(case, rng)
    lost = rng.random(case.windows) < case.lost_share
    for k in range(case.windows):
        own = {name: times[k] for name, times in parts.items()}
        start = free + own["script"]
        arrive = start + own["data"] + own["forward"] + own["backward"]
        pushed = arrive + own["link"] * (case.plane == "server")
        done = pushed.max() + case.exchange_s * rng.uniform(0.9, 1.1)
        for i in range(case.workers):
            wait = pushed.max() - pushed[i]
            backward_s, exchange_s = own["backward"][i], done - arrive[i] + own["optimizer"][i]
            if case.wait_inside_backward:
                backward_s, exchange_s = backward_s + wait, exchange_s - wait
            server = case.plane == "server"
            steps[i].append(
                _step(
                    time_s=start[i] + skew[i], clock=k, version=k, pull_s=0.0, data_s=own["data"][i],
                    forward_s=own["forward"][i], backward_s=backward_s,
                    wait_s=wait if server else 0.0, exchange_s=exchange_s - wait * server,
                    weight=weight[k, i], loss=float(loss[k]), applied=not lost[k],
                )
            )  # fmt: skip
            began = arrive[i] - own["backward"][i]
            if not server:
                ready = (float(own["backward"][i] * 0.5), float(own["backward"][i]))
                ended = (float(done - began - 0.001), float(done - began))
                buckets[i].append(
                    trace.Buckets(
                        time_s=float(began + skew[i]), clock=k, ready_s=ready, done_s=ended
                    )
                )
        free = done + own["optimizer"]
    return steps, buckets


def _on_arrival(case: Case, parts: dict[str, np.ndarray], weight: np.ndarray, rng: Any) -> Any:
    steps: list[list[trace.Step]] = [[] for _ in range(case.workers)]
    total, version, loss = case.windows * case.workers, 0, _losses(case, rng)
    heap = [(0.0, i, -1, 0, 0.0) for i in range(case.workers)]
    done = 0
    while heap:
        now, i, k, pulled, began = heapq.heappop(heap)
        if k >= 0:
            own = {name: times[k % case.windows][i] for name, times in parts.items()}
            steps[i].append(
                _step(
                    time_s=began + own["script"], clock=k, version=pulled, pull_s=0.0, data_s=own["data"],
                    forward_s=own["forward"], backward_s=own["backward"], lag=version - pulled,
                    exchange_s=case.exchange_s + own["link"], loss=float(loss[done // case.workers]),
                    weight=weight[k % case.windows, i],
                )
            )  # fmt: skip
            version, done = version + 1, done + 1
        if done + len(heap) >= total:
            continue
        row = {name: times[(k + 1) % case.windows][i] for name, times in parts.items()}
        heapq.heappush(heap, (now + sum(row.values()) + case.exchange_s, i, k + 1, version, now))
    return steps, [[] for _ in range(case.workers)]


def _step(**values: Any) -> trace.Step:
    return step(**{k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()})


def _losses(case: Case, rng: Any) -> np.ndarray:
    if case.losses is not None:
        return case.losses(rng, case.windows)
    return 2.0 * np.exp(-np.arange(case.windows) / 60) + 0.2 + 0.05 * rng.random(case.windows)


def recorded(tmp_path: Path, case: Case, **more: Any) -> Path:
    """``case`` as a run's directory."""
    run = fabricated(case)
    ranks = {
        rank.rank: [rank.setup, *(one for pair in _together(rank) for one in pair)]
        for rank in run.ranks
    }
    return write_run(tmp_path / "run", ranks, **more)


def _together(rank):
    return (
        zip(rank.steps, rank.buckets, strict=True) if rank.buckets else ((s,) for s in rank.steps)
    )
