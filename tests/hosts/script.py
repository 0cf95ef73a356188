"""Trains something small and says where it ended: ``script.py STRATEGY KEY SLEEP_S``.

KEY "-": the launcher has it.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline


def main() -> None:
    strategy, key, sleep_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 2000), nn.Tanh(), nn.Linear(2000, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = TensorDataset(torch.randn(160, 8), torch.randint(0, 3, (160,)))
    criterion = nn.CrossEntropyLoss()
    runtime = paceline.Runtime() if key == "-" else paceline.Runtime(key=key)
    with paceline.Worker(model, optimizer, strategy=strategy, runtime=runtime) as worker:
        for inputs, targets in worker.batches(DataLoader(data, batch_size=4)):
            time.sleep(sleep_s)
            worker.step(criterion(worker(inputs), targets))
        with worker.evaluate():
            loss = worker.mean(float(criterion(model(data.tensors[0]), data.tensors[1])), 160)
    total = sum(float(p.detach().double().sum()) for p in model.parameters())
    print(f"end {loss:.12f} {total:.12f}", flush=True)


if __name__ == "__main__":
    main()
