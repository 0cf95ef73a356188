"""Writes run directories as a launcher, workers and a server would: for tests of what reads them.

``write_run`` writes given records; ``simulated_run`` makes them with the max-plus recurrence of
FORMULAS ("SSP is a max-plus recurrence"), sync being staleness 0.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline import events, trace


@dataclass
class Ring:
    """Shape of a simulated run. ``slow``: factor on a rank's step times."""

    workers: int = 4
    windows: int = 40
    staleness: float = math.inf
    strategy: str = "async"
    topology: str = "server"
    step_s: float = 0.03
    hiccup: float = 0.1
    seed: int = 0
    digest: str = ""
    weight: float = 32.0
    slow: Mapping[int, float] = field(default_factory=dict)


def setup(**changes: Any) -> trace.Setup:
    values: dict[str, Any] = {
        "time_s": 99.0, "strategy": "async", "topology": "server", "world_size": 1, "accumulate": 1,
        "parameters": 1000, "parameter_bytes": 4000, "optimizer": "SGD(lr=0.1)", "types": "float32",
        "threads": 1, "seed": 0, "digest": "seed-0",
    }  # fmt: skip
    return trace.Setup(**{**values, **changes})


def step(**changes: Any) -> trace.Step:
    values: dict[str, Any] = {
        "time_s": 100.0, "clock": 0, "version": 1, "gate_s": 0.0, "pull_s": 0.001, "data_s": 0.001,
        "forward_s": 0.01, "backward_s": 0.02, "wait_s": 0.0, "exchange_s": 0.002,
        "sent_bytes": 4000, "received_bytes": 4000, "batches": 1, "weight": 32.0, "loss": 1.0,
        "norm": 1.0, "applied": True, "lag": 0,
    }  # fmt: skip
    return trace.Step(**{**values, **changes})


def write_run(
    directory: Path,
    ranks: Mapping[int, Sequence[Any]],
    *,
    decisions: Sequence[Any] = (),
    summary: Mapping[str, Any] | None = None,
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for rank, records in ranks.items():
        _write(directory / f"rank-{rank}.jsonl", "worker", rank, records)
    if decisions:
        _write(directory / "server.jsonl", "server", -1, decisions)
    if summary is not None:
        (directory / "run.json").write_text(json.dumps(summary))
    return directory


def simulated_run(directory: Path, ring: Ring) -> Path:
    """A run whose timing follows the recurrence and whose loss falls with the updates."""
    finishes, steps, decisions = _timeline(ring)
    end_s = max(max(times) for times in finishes)
    head = setup(
        strategy=ring.strategy, topology=ring.topology, world_size=ring.workers,
        seed=ring.seed, digest=ring.digest or f"seed-{ring.seed}",
    )  # fmt: skip
    total = ring.workers * ring.windows
    ranks = {
        rank: [head, *own, _end(end_s, total), *_metrics(rank, end_s, total * ring.weight)]
        for rank, own in enumerate(steps)
    }
    summary = {"peak_pss_bytes": 600_000_000 + 200_000_000 * ring.workers}
    return write_run(directory, ranks, decisions=decisions, summary=summary)


def _write(path: Path, role: Any, rank: int, records: Sequence[Any]) -> None:
    head = trace.header(role=role, rank=rank, time_s=98.0)
    path.write_bytes(b"".join(map(trace.encode, [head, *records])))


def _end(end_s: float, total: int) -> trace.Pass:
    return trace.Pass(
        time_s=end_s, pass_id=0, started_s=100.0, version=total, progress=total, skipped=0
    )


def _metrics(rank: int, end_s: float, samples: float) -> list[Any]:
    if rank:
        return []
    return [
        trace.Metric(
            time_s=100.0 + (end_s - 100.0) * part, name="accuracy", value=0.98 - 0.5 * (1 - part) ** 3,
            version=0, samples=samples * part,
        )
        for part in (0.25, 0.5, 0.75, 1.0)
    ]  # fmt: skip


def _timeline(ring: Ring) -> tuple[list[list[float]], list[list[trace.Step]], list[Any]]:
    draw = random.Random(ring.seed)
    workers = range(ring.workers)
    finishes: list[list[float]] = [[] for _ in workers]
    spans: list[tuple[float, float, float, int, int]] = []
    for k in range(ring.windows):
        back = k - ring.staleness - 1
        open_s = max(finishes[j][int(back)] for j in workers) if back >= 0 else 100.0
        for i in workers:
            ready_s = finishes[i][-1] if finishes[i] else 100.0
            own_s = ring.step_s * (4 if draw.random() < ring.hiccup else 1) * ring.slow.get(i, 1.0)
            start_s = max(ready_s, open_s)
            spans.append((start_s, start_s + own_s + 0.003, start_s - ready_s, i, k))
        for start_s, finish_s, _, i, at in spans[-ring.workers :]:
            assert at == k
            assert finish_s > start_s
            finishes[i].append(finish_s)
    return finishes, *_records(ring, spans, draw)


def _records(
    ring: Ring, spans: list[tuple[float, float, float, int, int]], draw: random.Random
) -> tuple[list[list[trace.Step]], list[Any]]:
    moments = sorted(
        [(finish, 0, span) for span in spans for finish in [span[1]]]
        + [(span[0], 1, span) for span in spans],
        key=lambda moment: (moment[0], moment[1], moment[2][4], moment[2][3]),
    )
    version, pulled = 0, dict.fromkeys(range(ring.workers), 0)
    steps: list[list[trace.Step]] = [[] for _ in range(ring.workers)]
    decisions: list[Any] = [events.Join(time_s=99.0, rank=i) for i in range(ring.workers)]
    for time_s, is_start, (start_s, finish_s, gate_s, rank, clock) in moments:
        if is_start:
            pulled[rank] = version
            decisions.append(events.Pull(time_s=time_s, rank=rank))
            decisions.append(_start(rank, clock, version))
            continue
        lag = version - pulled[rank] if ring.staleness else 0
        version += 1
        decisions.append(events.Push(time_s=time_s, rank=rank, weight=ring.weight, unit=1.0))
        decisions.append(_update(rank, clock, version, lag))
        loss = 2.3 * math.exp(-version / 60) + 0.1 + 0.15 * draw.random()
        compute_s = finish_s - start_s - 0.003
        steps[rank].append(
            step(
                time_s=start_s + 0.001,
                clock=clock,
                version=version,
                gate_s=gate_s,
                lag=lag,
                loss=loss,
                forward_s=compute_s / 3,
                backward_s=2 * compute_s / 3,
                pull_s=0.001,
                data_s=0.0005,
                exchange_s=0.0015,
                weight=ring.weight,
            )
        )
    return steps, decisions


def _start(rank: int, clock: int, version: int) -> events.Start:
    return events.Start(
        rank=rank, clock=clock, version=version, batches=(clock,), reason="gate open"
    )


def _update(rank: int, clock: int, version: int, lag: int) -> events.Update:
    return events.Update(
        ranks=(rank,), clocks=(clock,), lags=(lag,), version=version, divisor=1.0, lr_scale=1.0,
        weight=32.0, progress=version, reason="arrived",
    )  # fmt: skip
