"""A small CNN with batch norm on Fashion-MNIST: what accuracy benchmarks train."""

from __future__ import annotations

import argparse
import gzip
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline

DATA = Path("/usr/share/datasets/fashion-mnist")
BATCH = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--lr", type=float, default=0.08)
    args = parser.parse_args()

    train = DataLoader(images("train", args.samples), batch_size=BATCH, shuffle=True)
    test = DataLoader(images("t10k"), batch_size=500)
    model = cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
    worker = paceline.Worker(model, optimizer, precision=args.precision)
    updates = args.epochs * len(train)
    worker.scheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates))
    for _ in range(args.epochs):
        for inputs, targets in worker.batches(train):
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
        with worker.evaluate():
            hits = seen = 0
            for inputs, targets in worker.batches(test):
                hits += int((worker(inputs).argmax(1) == targets).sum())
                seen += len(targets)
            worker.log(accuracy=worker.mean(hits / seen, seen))
    worker.close()


@cache  # virtual workers are in one process
def images(name: str, count: int | None = None) -> TensorDataset:
    """The first ``count`` images (float32, normalised, count x 1 x 28 x 28) and their labels."""
    with gzip.open(DATA / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)[:count]
    with gzip.open(DATA / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)[:count]
    inputs = (torch.tensor(pixels, dtype=torch.float32) / 255 - 0.286) / 0.353
    return TensorDataset(inputs, torch.tensor(labels, dtype=torch.int64))


def cnn() -> nn.Module:
    """Two strided convolutions with batch norm, and a linear layer: 20,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )


if __name__ == "__main__":
    main()
