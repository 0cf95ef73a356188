"""Linear layers whose computing is negligible, so that a step is its exchange: prints each step's time.

``steps.py STRATEGY COMPRESS SIDE LAYERS STEPS``; COMPRESS may be "none".
"""

from __future__ import annotations

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

import paceline


def main() -> None:
    strategy, compress = sys.argv[1:3]
    side, layers, steps = map(int, sys.argv[3:6])
    model = torch.nn.Sequential(*(torch.nn.Linear(side, side, bias=False) for _ in range(layers)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    data = TensorDataset(torch.randn(8 * steps, side))
    word = None if compress == "none" else compress
    with paceline.Worker(model, optimizer, strategy=strategy, compress=word) as worker:
        last = None
        for (inputs,) in worker.batches(DataLoader(data), steps=steps):
            worker.step(worker(inputs).square().mean())
            now = time.monotonic()
            if last is not None:
                print("took", now - last, flush=True)
            last = now


if __name__ == "__main__":
    main()
