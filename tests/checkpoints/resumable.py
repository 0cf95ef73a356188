"""A training that saves as it goes: what the tests of this directory interrupt and resume.

``resumable.py MARKS [--every 3] [--step-s 0.01] [--epochs 2] [--batches 40] [--load PATH]``

Everything that a resume can lose is in it: dropout on every rank, batch norm, momentum, a schedule,
a shuffling loader. At the end every rank writes a digest of all it holds to ``MARKS/end-<rank>``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("marks", type=Path)
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--step-s", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--keep", type=int, default=3)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--adam", action="store_true")
    parser.add_argument("--die-at", type=int, default=-1, help="the version saved last")
    return parser.parse_args()


def build(adam: bool = False) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 3)
    )
    if adam:
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def build_loader(batches: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(batches * 4, 6, generator=generator)
    targets = torch.randint(0, 3, (batches * 4,), generator=generator)
    return DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=True)


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    hasher = hashlib.sha256()
    for tensor in [*model.state_dict().values()]:
        hasher.update(tensor.contiguous().numpy().tobytes())
    for _, state in sorted(optimizer.state_dict()["state"].items()):
        for key in sorted(state):
            hasher.update(torch.as_tensor(state[key]).contiguous().numpy().tobytes())
    return hasher.hexdigest()


def main() -> None:
    arguments = parse()
    model, optimizer = build(arguments.adam)
    loader = build_loader(arguments.batches)
    worker = paceline.Worker(model, optimizer, accumulate=arguments.accumulate)
    worker.scheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200))
    if arguments.load is not None:
        worker.load(arguments.load)
    for _ in range(arguments.epochs):
        for step, (inputs, targets) in enumerate(worker.batches(loader)):
            time.sleep(arguments.step_s)
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
            if step % arguments.every == arguments.every - 1:
                worker.save(keep=arguments.keep)
                if worker.version == arguments.die_at:
                    os.kill(os.getpid(), signal.SIGKILL)
        worker.save(keep=arguments.keep)
    facts = f"{worker.version} {worker.samples:g} {optimizer.param_groups[0]['lr']!r}"
    worker.close()
    end = arguments.marks / f"end-{worker.rank}"
    end.write_text(f"{digest(model, optimizer)} {facts}")


if __name__ == "__main__":
    main()
