"""Model A for so many windows, an ordinary script: ``layers.py STEPS``. The run's words are the user's."""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

import paceline

SIDE, LAYERS, BATCH = 1000, 25, 8
SIZE_BYTES = 4 * LAYERS * (SIDE * SIDE + SIDE)


def main() -> None:
    steps = int(sys.argv[1])
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(SIDE, SIDE) for _ in range(LAYERS)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    samples = BATCH * steps * paceline.current_launch().world_size
    loader = DataLoader(TensorDataset(torch.randn(samples, SIDE)), batch_size=BATCH)
    with paceline.Worker(model, optimizer) as worker:
        for (inputs,) in worker.batches(loader):
            worker.step(worker(inputs).square().mean())


if __name__ == "__main__":
    main()
