"""A tiny training that says when it is under way: ``training_script.py MARKS [--epochs 2]``."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("marks", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--step-s", type=float, default=0.0)
    arguments = parser.parse_args()
    inputs = torch.arange(96.0).reshape(24, 4) / 96
    loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=2)
    model = nn.Linear(4, 1)
    worker = paceline.Worker(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(arguments.epochs):
        for step, (batch, targets) in enumerate(worker.batches(loader)):
            time.sleep(arguments.step_s)
            worker.step(nn.functional.mse_loss(worker(batch), targets))
            if step == 1:
                announce(arguments.marks / f"training-{worker.rank}")
    worker.close()
    print(f"rank {worker.rank} of {worker.world_size}: weight {model.weight.sum().item():.6f}")


def announce(path: Path) -> None:
    """Write this process's id, whole at once."""
    new = path.with_suffix(".new")
    new.write_text(str(os.getpid()))
    new.rename(path)


if __name__ == "__main__":
    main()
