"""The cells of the equality matrix: what is trained, and on what. Shared by script and oracles."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

LEARNING_RATE = 0.05
EPOCHS = 2
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "rmsprop")
DATA = ("equal", "unequal")
DTYPES = ("float64", "float32")
JOINT = ("sync:server", "ssp:0", "sync:allreduce")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One training: every field is an axis of the matrix."""

    strategy: str
    optimizer: str
    accumulate: int
    clip_norm: float | None
    data: str
    dtype: str

    @property
    def name(self) -> str:
        clip = "clip" if self.clip_norm else "free"
        parts = (self.strategy, self.optimizer, f"k{self.accumulate}", clip, self.data, self.dtype)
        return "-".join(parts).replace(":", "_")


class Net(nn.Module):
    """Tied weights (one layer used twice), an unused layer, a frozen one; no structural zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.shared = nn.Linear(8, 8)
        self.again = nn.Linear(8, 8)
        self.again.weight = self.shared.weight
        self.unused = nn.Linear(4, 4)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.again(torch.tanh(self.shared(x))))
        out: torch.Tensor = self.last(torch.tanh(self.frozen(x)))
        return out


def build_model(cell: Cell, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return Net().to(getattr(torch, cell.dtype))


def build_optimizer(cell: Cell, model: nn.Module) -> torch.optim.Optimizer:
    parameters = [p for p in model.parameters() if p.requires_grad]
    if cell.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=LEARNING_RATE)
    if cell.optimizer == "momentum":
        return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=0.9, weight_decay=1e-3)
    if cell.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=LEARNING_RATE / 5)
    if cell.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=LEARNING_RATE / 5, weight_decay=1e-2)
    return torch.optim.RMSprop(parameters, lr=LEARNING_RATE / 10)


def build_loader(cell: Cell) -> DataLoader[tuple[torch.Tensor, ...]]:
    """16 batches of 4 samples, or 16 of 4 and a last one of 3: divisible by nothing used here."""
    samples = 64 if cell.data == "equal" else 67
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(samples, 6, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 3, (samples,), generator=generator)
    dataset: Dataset[tuple[torch.Tensor, ...]] = TensorDataset(
        inputs.to(getattr(torch, cell.dtype)), targets
    )
    return DataLoader(dataset, batch_size=4, shuffle=True)


def loss_function() -> nn.Module:
    return nn.CrossEntropyLoss()


def full_matrix() -> list[Cell]:
    """Every joint cell, and the asynchronous ones that have an oracle."""
    axes = itertools.product(JOINT, OPTIMIZERS, (1, 2, 3, 4), (None, 0.05), DATA, DTYPES)
    joint = [
        Cell(strategy=s, optimizer=o, accumulate=k, clip_norm=c, data=d, dtype=t)
        for s, o, k, c, d, t in axes
    ]
    alone = [
        Cell(strategy=s, optimizer="sgd", accumulate=k, clip_norm=None, data=d, dtype="float32")
        for s, k, d in itertools.product(("async:sum", "ssp:2:sum"), (1, 2, 3), DATA)
    ]
    return joint + alone


def covering_subset(workers: int) -> list[Cell]:
    """A spread of the matrix in which every value of every axis meets every strategy."""
    cells = full_matrix()
    joint = [cell for cell in cells if cell.strategy in JOINT]
    picked = [cell for index, cell in enumerate(joint) if (index * 7 + workers * 3) % 17 == 0]
    return picked + [cell for cell in cells if cell.strategy not in JOINT][workers % 3 :: 3]


def chosen(which: str, workers: int) -> list[Cell]:
    """The cells of a setting: "full", "subset", or "divided": the subset's that have a server."""
    if which == "full":
        return full_matrix()
    subset = covering_subset(workers)
    return [cell for cell in subset if which == "subset" or cell.strategy != "sync:allreduce"]
