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


def resume(cell: Cell, out: Path) -> None:
    """Two epochs from a checkpoint on, twice: what each ended with."""
    model, optimizer, loader = build(cell)
    ends, own = [], []
    with paceline.Worker(
        model, optimizer, strategy=cell.strategy, recipe=f"stable:{WARMUP}"
    ) as worker:
        for _ in range(2):
            for _ in range(EPOCHS):
                for inputs, targets in worker.batches(loader):
                    worker.step(nn.functional.cross_entropy(worker(inputs), targets))
            ends.append({name: p.detach().clone() for name, p in model.named_parameters()})
            if len(ends) == 1:
                worker.save(out / f"saved-{cell.name}")
                own.append(own_momentum(optimizer))
        worker.load(out / f"saved-{cell.name}")
        own.append(own_momentum(optimizer))
        for _ in range(EPOCHS):
            for inputs, targets in worker.batches(loader):
                worker.step(nn.functional.cross_entropy(worker(inputs), targets))
        ends.append({name: p.detach().clone() for name, p in model.named_parameters()})
        rank = worker.rank
    torch.save({"ends": ends, "own": own}, out / f"resumed-{cell.name}-{rank}.pt")


def own_momentum(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Of this rank, once the worker has shown it."""
    states = optimizer.state_dict()["state"].values()
    return [state["momentum_buffer"].clone() for state in states]


def main() -> None:
    out = Path(sys.argv[1])
    for cell in [*JOINT, *APART]:
        train(cell, out)
    for cell in (JOINT[0], JOINT[2], APART[0]):
        resume(cell, out)


if __name__ == "__main__":
    main()
