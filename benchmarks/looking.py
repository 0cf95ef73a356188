"""What looking costs: CPU time of gradient health and of verify's checksums beside a step of model A.

Model A: 25 x Linear(1000, 1000), batch 8, one worker, one thread. ``python benchmarks/looking.py``.
Both are measured side by side in one process, so that other work on the machine touches them alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from paceline.gradients.checksum import checksums, shown
from paceline.gradients.health import examine

ROUNDS = 15


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(1000, 1000) for _ in range(25)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(8, 1000)
    tensors = [parameter.detach() for parameter in model.parameters()]

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def health() -> None:
        examine([p.grad for p in model.parameters() if p.grad is not None])

    def verify() -> None:
        for tensor, checksum in zip(tensors, checksums(tensors), strict=True):
            shown(tensor, checksum)

    spent = measured(step, health, verify)
    print(f"a step of model A    {spent[0] * 1e3:7.2f} ms of CPU time (median of {ROUNDS})")
    for name, every, own in (("health", 10, spent[1]), ("verify", 100, spent[2])):
        share = own / every / spent[0]
        print(
            f"{name:6} of all of it  {own * 1e3:7.2f} ms; every {every} steps: {share:.2%} of a step"
        )


def measured(*jobs: Callable[[], None]) -> list[float]:
    """Median CPU seconds of each, taken in turn."""
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(ROUNDS):
        for job, spent in zip(jobs, times, strict=True):
            began_s = time.process_time()
            job()
            spent.append(time.process_time() - began_s)
    return [statistics.median(spent[1:]) for spent in times]


if __name__ == "__main__":
    main()
