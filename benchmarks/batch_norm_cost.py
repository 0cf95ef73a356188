"""What synchronised batch norm costs: a meeting's time over server and gloo, and a step's.

paceline run -n 4 --threads 1 benchmarks/batch_norm_cost.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from torch import nn

import paceline
from batch_norm import Digits, net, sgd

CHANNELS = (64, 2048)
TURNS = 200
BATCH = 16


def median_ms(action: Callable[[], object]) -> float:
    times = []
    for _ in range(TURNS):
        began_s = time.perf_counter()
        action()
        times.append(time.perf_counter() - began_s)
    return 1e3 * median(times[TURNS // 10 :])


def gathers(worker: paceline.Worker) -> list[str]:
    """A forward's share of so many channels: a count, means and squares in float64."""
    gather = worker._parts.plane.gather
    lines = []
    for channels in CHANNELS:
        share = torch.zeros(1 + 2 * channels, dtype=torch.float64)
        parts = [torch.empty_like(share) for _ in range(worker.world_size)]
        server_ms = median_ms(lambda s=share: gather("benchmark", s.numpy().tobytes()))
        gloo_ms = median_ms(lambda p=parts, s=share: dist.all_gather(p, s))
        lines.append(
            f"gather of {channels} channels: {server_ms:.2f} ms by the server, {gloo_ms:.2f} by gloo"
        )
    return lines


def step_ms(mode: str) -> float:
    """Of the digits CNN with three batch norms, forward included."""
    model = net(nn.BatchNorm2d)
    batches = Digits(0).one_pass(BATCH)
    with paceline.Worker(model, sgd(model), strategy="sync:allreduce", batch_norm=mode) as worker:
        times, last_s = [], time.perf_counter()
        for images, labels in worker.batches(batches, steps=TURNS):
            worker.step(nn.functional.cross_entropy(worker(images), labels))
            times.append(time.perf_counter() - last_s)
            last_s = time.perf_counter()
    return 1e3 * median(times[TURNS // 10 :])


def main() -> None:
    model = net(nn.BatchNorm2d)
    with paceline.Worker(model, sgd(model), strategy="sync:allreduce") as worker:
        lines = gathers(worker)
        speaks = worker.rank == 0
    for mode in ("local", "sync"):
        lines.append(f"step of a CNN with three batch norms, {mode}: {step_ms(mode):.2f} ms")
    if speaks:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
