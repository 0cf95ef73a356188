"""One pass over Fashion-MNIST, as a plain loop or with paceline; prints processor milliseconds per batch.

Arguments: how many images; ``--plain``.
"""

from __future__ import annotations

import sys
import time

import torch
from fashion import images
from torch import nn
from torch.utils.data import DataLoader

import paceline
from recipes import cnn


def main() -> None:
    train = DataLoader(images("train", int(sys.argv[1])), batch_size=32, shuffle=True)
    model = cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    if "--plain" in sys.argv:
        plain(model, optimizer, train)
        return
    worker = paceline.Worker(model, optimizer)
    began_s = time.process_time()
    for inputs, targets in worker.batches(train):
        worker.step(nn.functional.cross_entropy(worker(inputs), targets))
    if worker.rank == 0:
        print(1e3 * (time.process_time() - began_s) / len(train))
    worker.close()


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, train: DataLoader) -> None:  # type: ignore[type-arg]
    began_s = time.process_time()
    for inputs, targets in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    print(1e3 * (time.process_time() - began_s) / len(train))


if __name__ == "__main__":
    main()
