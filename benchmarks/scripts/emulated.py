"""The user's side of a predicted run: a small model, trained under several strategies in turn.

``paceline run -n 4 --emulate cluster.toml emulated.py sync=80 ssp:3=40``: with each strategy as many
batches as make so many windows of each worker on average. What is timed is the emulated cluster: the
model's own work is a small part of a step and counts towards it.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline.launch.context import current_launch

BATCH = 2


def main() -> None:
    for argument in sys.argv[1:]:
        word, _, steps = argument.partition("=")
        samples = int(steps) * current_launch().world_size * BATCH
        dataset = TensorDataset(torch.randn(samples, 8), torch.arange(samples) % 2)
        loader = DataLoader(dataset, batch_size=BATCH)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with paceline.Worker(model, optimizer, strategy=word) as worker:
            for x, y in worker.batches(loader):
                worker.step(nn.functional.cross_entropy(worker(x), y))


if __name__ == "__main__":
    main()
