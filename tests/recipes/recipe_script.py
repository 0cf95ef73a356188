"""Trains every cell, one after the other, on the workers that run it. Argument: where results go."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from recipe_cells import APART, EPOCHS, JOINT, WARMUP, Cell, build
from torch import nn

import paceline


def train(cell: Cell, out: Path) -> None:
    model, optimizer, loader = build(cell)
    worker = paceline.Worker(
        model, optimizer, strategy=cell.strategy, accumulate=cell.accumulate,
        clip_norm=cell.clip_norm, recipe=f"stable:{WARMUP}",
    )  # fmt: skip
    for _ in range(EPOCHS):
        for inputs, targets in worker.batches(loader):
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
    rank = worker.rank
    worker.close()
    if rank == 0:
        found = {
            "parameters": {name: p.detach().clone() for name, p in model.named_parameters()},
            "state": sorted({key for own in optimizer.state.values() for key in own}),
            "nesterov": optimizer.param_groups[0].get("nesterov"),
        }
        torch.save(found, out / f"{cell.name}.pt")


def main() -> None:
    for cell in [*JOINT, *APART]:
        train(cell, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
