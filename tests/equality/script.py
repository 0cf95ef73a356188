"""Trains every cell of a list, one after another, on the workers that run it; saves what came out.

Run by the equality tests through ``paceline run -n N script.py OUT full|subset|divided SEED``. Divided:
what the server does, with buckets so small that even this model can be divided among shards.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from cells import EPOCHS, build_loader, build_model, build_optimizer, chosen
from cells import loss_function as build_loss

import paceline
from paceline.worker import server_plane, shared_gradients

SMALL_BUCKET_BYTES = 128


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
    if which == "divided":
        shared_gradients.BUCKET_BYTES = server_plane.BUCKET_BYTES = SMALL_BUCKET_BYTES
    workers = paceline.current_launch().world_size
    cells = chosen(which, workers)
    for cell in cells:
        train(cell, seed, out)


if __name__ == "__main__":
    main()
