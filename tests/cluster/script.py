"""A tiny model on many small batches: what is timed is the emulated cluster, not the arithmetic.

``script.py BATCHES [EPOCHS] [ACCUMULATE] [FEATURES] [BATCH]``
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline


def main() -> None:
    numbers = [int(x) for x in sys.argv[1:]]
    batches, epochs, accumulate, features, batch = [*numbers, *[0, 1, 1, 8, 2][len(numbers) :]]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batches * batch, features)
    loader = DataLoader(TensorDataset(inputs, torch.arange(len(inputs)) % 2), batch_size=batch)
    with paceline.Worker(model, optimizer, accumulate=accumulate) as worker:
        for _ in range(epochs):
            for x, y in worker.batches(loader):
                worker.step(nn.functional.cross_entropy(worker(x), y))


if __name__ == "__main__":
    main()
