"""One window of 1,024 images through a small CNN, in micro-batches of a given size.

``memory_script.py BATCH ACCUMULATE``: prints this process's peak resident memory in bytes.
"""

from __future__ import annotations

import resource
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline


def main() -> None:
    batch, accumulate = int(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.Tanh(), nn.Conv2d(16, 16, 3), nn.Tanh(), nn.Flatten(),
        nn.Linear(16 * 24 * 24, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(2048, 1, 28, 28)
    loader = DataLoader(TensorDataset(images, torch.arange(2048) % 10), batch_size=batch)
    with paceline.Worker(model, optimizer, accumulate=accumulate) as worker:
        for x, y in worker.batches(loader):
            worker.step(nn.functional.cross_entropy(worker(x), y))
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


if __name__ == "__main__":
    main()
