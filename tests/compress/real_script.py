"""Trains a small network under every compression and strategy in ``argv``, and verifies that ranks agree."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import nn

import paceline

BATCHES = 40


def main(out: Path, strategies: list[str], words: list[str]) -> None:
    found: dict[str, list[float]] = {}
    rank = 0
    for strategy in strategies:
        for word in words:
            worker, losses = train(strategy, word)
            found[f"{strategy} {word}"] = losses
            rank = worker.rank
    (out / f"rank-{rank}.json").write_text(json.dumps(found))


def train(strategy: str, word: str) -> tuple[paceline.Worker, list[float]]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(40, 50), nn.Tanh(), nn.Linear(50, 30))
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(40, 30, generator=generator)
    data = [torch.randn(4 + n % 2, 40, generator=generator) for n in range(BATCHES)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with paceline.Worker(model, optimizer, strategy=strategy, compress=word) as worker:
        for _ in range(2):
            for inputs in worker.batches(data):
                loss = nn.functional.mse_loss(worker(inputs), torch.tanh(inputs @ weight))
                worker.step(loss)
                losses.append(float(loss.detach()))
        worker.verify()
    return worker, losses


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(), sys.argv[3].split())
