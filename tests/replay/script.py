"""A training with everything that a replay has to repeat.

``script.py [--kill RANK] [--fail RANK] [--batches 48] [--epochs 2] [--save-every 5] ...``

Dropout, noise in the loader, windows whose gradient is not finite, looks at the latest version inside
the loop, checkpoints. ``--kill``, ``--fail``: the rank kills itself, or raises, in its fourth window of
the last pass. The file named by ``--perturb-if``, if it exists, has the rank whose number is in it change
one number of one input, in its third window.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import paceline


class Samples(Dataset[tuple[torch.Tensor, int]]):
    """Some samples make a gradient that is not finite."""

    def __init__(self, count: int, *, bad: bool) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(count, 12, generator=generator)
        if bad:
            self.inputs[count // 3, 0] = torch.inf
            self.inputs[count // 2, 0] = torch.nan

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.inputs[index] + 0.01 * torch.randn(12), index % 3


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", type=int, default=-1)
    parser.add_argument("--loader-workers", type=int, default=0)
    parser.add_argument("--fail", type=int, default=-1)
    parser.add_argument("--perturb-if", type=Path, default=Path("nowhere"))
    parser.add_argument("--batches", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--step-s", type=float, default=0.004)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--workers-made", type=int, default=1)
    parser.add_argument("--no-bad", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse()
    for _ in range(options.workers_made):
        train(options)


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    worker = paceline.Worker(model, optimizer)
    perturbed = options.perturb_if.exists() and options.perturb_if.read_text().strip() == str(
        worker.rank
    )
    data = Samples(options.batches * 4, bad=not options.no_bad)
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=options.loader_workers)
    # From the system's clock, so that no two runs have the same order.
    pause = time.time_ns()
    for epoch in range(options.epochs):
        for step, (inputs, targets) in enumerate(worker.batches(loader)):
            pause = (pause * 6364136223846793005 + worker.rank + 1) % 2**64
            time.sleep(options.step_s * (pause >> 32) / 2**31)
            here = (epoch, step) == (options.epochs - 1, 3)
            if worker.rank == options.kill and here:
                os.kill(os.getpid(), signal.SIGKILL)
            if worker.rank == options.fail and here:
                raise RuntimeError("this script fails")
            if perturbed and (epoch, step) == (0, 2):
                inputs[0, 0] += 0.001
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
            if step % 7 == 6:
                with worker.evaluate(), torch.no_grad():
                    worker.log(seen=float(model(data.inputs[:4]).sum()))
            if options.save_every and step % options.save_every == 0:
                worker.save()
    with worker.evaluate():
        worker.log(size=worker.mean(sum(float(p.sum()) for p in model.parameters())))
    worker.close()


if __name__ == "__main__":
    main()
