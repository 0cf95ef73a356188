"""The user's side of an advised run: a small CNN on digits, evaluated on held-out images as it trains.

``paceline run`` and ``advise``: one Worker, strategy and rate from the command line. With ``--cells`` one
Worker after another in the same processes, a trial (see paceline.trials) each, every one with every seed;
each ends at the target. Only rank 0 looks at the held-out images, so nobody waits for that.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline.trials import Trial, parse_trial

HELD_OUT = 360
LOOK_EVERY_BATCHES = 12
"""Of all workers together."""


def main() -> None:
    args = _arguments()
    if not args.cells:
        _train(args, None, seed=None)
        return
    for text in Path(args.cells).read_text().splitlines():
        for seed in range(args.seeds):
            _train(args, parse_trial(text), seed=seed)


def _train(args: argparse.Namespace, trial: Trial | None, *, seed: int | None) -> None:
    if seed is not None:
        torch.manual_seed(seed)
    train, inputs, targets = _digits()
    loader = DataLoader(train, batch_size=args.batch, shuffle=True)
    model = _cnn()
    factor = 1.0 if trial is None else trial.lr_factor
    optimizer = _optimizer(args, model, factor)
    words: dict[str, Any] = {}
    if trial is not None:  # a loss that is lost for good is not to end the candidates after it
        endless = paceline.Runtime(max_skips=10**6)
        words = {"strategy": trial.strategy, **trial.overrides, "runtime": endless}
    with paceline.Worker(model, optimizer, **words) as worker:
        done = False
        every = max(1, LOOK_EVERY_BATCHES // worker.world_size)
        for _ in range(args.epochs):
            for number, (images, labels) in enumerate(worker.batches(loader)):
                worker.step(nn.functional.cross_entropy(worker(images), labels))
                if worker.rank == 0 and number % every == 0:
                    loss = _look(worker, inputs, targets)
                    done = done or (trial is not None and loss <= args.target)
                if done:
                    worker.stop(True)
            if worker.stop(done):
                break


def _look(worker: paceline.Worker, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    with worker.evaluate():
        loss = float(nn.functional.cross_entropy(worker(inputs), targets))
    loss = min(loss, 1e6) if loss == loss else 1e6
    worker.log(loss=loss)
    return loss


def _digits() -> tuple[TensorDataset, torch.Tensor, torch.Tensor]:
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)[order] / 8 - 1
    labels = torch.tensor(data.target)[order]
    train = TensorDataset(images[HELD_OUT:], labels[HELD_OUT:])
    return train, images[:HELD_OUT], labels[:HELD_OUT]


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(8 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def _optimizer(args: argparse.Namespace, model: nn.Module, factor: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=args.lr * factor, momentum=args.momentum)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--target", type=float, default=0.3, help="held-out loss [0.3]")
    parser.add_argument("--cells", help="a file with a trial a line")
    parser.add_argument("--seeds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
