"""Trains every cell of a list, one after another, on the workers that run it; saves what came out.

Run by the equality tests through ``paceline run -n N script.py OUT full|subset SEED``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from cells import EPOCHS, build_loader, build_model, build_optimizer, covering_subset, full_matrix
from cells import loss_function as build_loss

import paceline


def train(cell, seed: int, out: Path) -> None:  # type: ignore[no-untyped-def]
    model = build_model(cell, seed)
    optimizer = build_optimizer(cell, model)
    loader, criterion = build_loader(cell), build_loss()
    worker = paceline.Worker(
        model,
        optimizer,
        strategy=cell.strategy,
        accumulate=cell.accumulate,
        clip_norm=cell.clip_norm,
    )
    for _ in range(EPOCHS):
        for inputs, targets in worker.batches(loader):
            worker.step(criterion(worker(inputs), targets))
    rank = worker.rank
    worker.close()
    parameters = {name: p.detach().clone() for name, p in model.named_parameters()}
    torch.save(parameters, out / f"{cell.name}-rank{rank}.pt")


def main() -> None:
    out, which, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    workers = paceline.current_launch().world_size
    cells = full_matrix() if which == "full" else covering_subset(workers)
    for cell in cells:
        train(cell, seed, out)


if __name__ == "__main__":
    main()
