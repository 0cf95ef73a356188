"""What `make bench-accuracy` trains: a CNN on Fashion-MNIST, or a small attention model on text.

An ordinary paceline script: strategy, recipe, workers and cluster come from `paceline run`. Logs
``score`` after every epoch: test accuracy in per cent, or minus the held-out loss in nats a byte.
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from fashion import images
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline

HELD_OUT = 5000
CONTEXT = 32
NADAM = partial(torch.optim.NAdam, weight_decay=1e-2, decoupled_weight_decay=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """``score(model outputs, targets)``: the mean over a batch, larger is better."""

    model: nn.Module
    optimizer: Callable[..., torch.optim.Optimizer]
    train: TensorDataset
    test: TensorDataset
    batch: int
    score: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["fashion", "text"])
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--samples", type=int, help="Train on the first so many only.")
    parser.add_argument("--held-out", action="store_true", help="Score on training data kept back.")
    parser.add_argument("--optimizer", choices=["nadam"], help="Another than the task's own.")
    args = parser.parse_args()

    task = (fashion if args.task == "fashion" else text)(args.held_out, args.samples)
    train = DataLoader(task.train, batch_size=task.batch, shuffle=True)
    test = DataLoader(task.test, batch_size=500)
    make = NADAM if args.optimizer == "nadam" else task.optimizer
    optimizer = make(task.model.parameters(), lr=args.lr)
    worker = paceline.Worker(task.model, optimizer)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
    worker.scheduler(cosine)
    for _ in range(args.epochs):
        for inputs, targets in worker.batches(train):
            outputs = worker(inputs)
            worker.step(nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten()))
        with worker.evaluate():
            total = seen = 0.0
            for inputs, targets in worker.batches(test):
                total += float(task.score(worker(inputs), targets)) * len(inputs)
                seen += len(inputs)
            score = worker.mean(total / max(1.0, seen), seen)
        worker.log(score=score)
    worker.close()


def fashion(held_out: bool, samples: int | None) -> Task:
    """60,000 images and the test set, or 55,000 and the 5,000 that they leave."""
    train, test = images("train"), images("t10k")
    if held_out:
        test = TensorDataset(*train[-HELD_OUT:])
        train = TensorDataset(*train[:-HELD_OUT])
    if samples is not None:
        train = TensorDataset(*train[:samples])
    return Task(
        model=cnn(), optimizer=partial(torch.optim.SGD, momentum=0.9), train=train, test=test, batch=32,
        score=lambda outputs, targets: 100 * (outputs.argmax(1) == targets).float().mean(),
    )  # fmt: skip


def cnn() -> nn.Module:
    """Two strided convolutions (16, 32 channels) and a hidden layer of 64: 106,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def text(held_out: bool, samples: int | None) -> Task:
    """Pieces of Python's standard library, byte by byte: 12,288 to train on, 512 to score."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    stream = np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8)
    whole = len(stream) // (CONTEXT + 1) * (CONTEXT + 1)
    pieces = torch.tensor(stream[:whole].astype(np.int64)).view(-1, CONTEXT + 1)
    pieces = pieces[torch.randperm(len(pieces), generator=torch.Generator().manual_seed(7))]
    scored = pieces[-1024:-512] if held_out else pieces[-512:]
    train = pieces[: samples or 12_288]
    return Task(
        model=Reader(), optimizer=torch.optim.AdamW, train=_next_byte(train), test=_next_byte(scored),
        batch=8,
        score=lambda outputs, targets: -nn.functional.cross_entropy(outputs.mT, targets),
    )  # fmt: skip


def _next_byte(pieces: torch.Tensor) -> TensorDataset:
    return TensorDataset(pieces[:, :-1], pieces[:, 1:])


class Reader(nn.Module):
    """Predicts the next byte: two pre-norm blocks of causal attention, width 64: 135,000 parameters."""

    def __init__(self, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        nn.init.normal_(self.bytes.weight, std=0.02)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.norm(self.blocks(self.bytes(x) + self.places)))
        return out


class Block(nn.Module):
    """Attention, then two layers, each beside a residual path."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.think = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, places, width = x.shape
        split = (
            self.qkv(self.before(x)).view(batch, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        seen = nn.functional.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(batch, places, width))
        out: torch.Tensor = x + self.think(x)
        return out


if __name__ == "__main__":
    main()
