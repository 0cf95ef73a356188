"""Dropout, batch norm, loader processes and draws of every kind: what a run must repeat bit for bit."""

from __future__ import annotations

import random
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import paceline


class Noisy(Dataset):  # type: ignore[type-arg]
    """Samples that differ each time they are loaded, as augmented images do."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        drawn = torch.full((8,), float(index % 3)) + torch.randn(8)
        return drawn, index % 3


def main() -> None:
    loader_workers = int(sys.argv[1])
    model = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    worker = paceline.Worker(model, optimizer, clip_norm=1.0)
    loader = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=loader_workers)
    for _ in range(3):
        for inputs, targets in worker.batches(loader):
            shift = random.gauss(0, 0.1) + np.random.normal(0, 0.1)
            worker.step(nn.functional.cross_entropy(worker(inputs + shift), targets))
        with worker.evaluate():
            value = float(worker(torch.ones(2, 8)).sum())
            worker.log(value=worker.mean(value))
    print(f"drew {torch.rand(1).item():.9f} {np.random.rand():.9f} {random.random():.9f}")
    worker.close()


if __name__ == "__main__":
    main()
