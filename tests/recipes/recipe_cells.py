"""What is trained under the stable recipe; shared by the script that runs it and by the naive loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 2
WARMUP = 6
SEED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One training. ``hyper``: of the optimizer class ``optimizer``."""

    name: str
    strategy: str
    optimizer: str
    hyper: dict[str, Any]
    accumulate: int = 1
    clip_norm: float | None = None


SGD: dict[str, Any] = {"lr": 0.2, "momentum": 0.9, "weight_decay": 1e-2}
ADAM: dict[str, Any] = {"lr": 0.02, "weight_decay": 1e-2}

JOINT = [
    Cell(name="server", strategy="sync:server", optimizer="SGD", hyper=SGD),
    Cell(
        name="server-clip",
        strategy="ssp:0",
        optimizer="SGD",
        hyper=SGD,
        clip_norm=0.2,
        accumulate=2,
    ),
    Cell(name="allreduce", strategy="sync:allreduce", optimizer="SGD", hyper=SGD, accumulate=2),
    Cell(name="server-adamw", strategy="sync:server", optimizer="AdamW", hyper=ADAM),
]
APART = [
    Cell(name="async", strategy="async", optimizer="SGD", hyper=SGD),
    Cell(name="ssp", strategy="ssp:2", optimizer="SGD", hyper=SGD, clip_norm=0.3, accumulate=2),
    Cell(name="sum", strategy="async:sum", optimizer="SGD", hyper={**SGD, "lr": 0.05}),
    Cell(name="ascent", strategy="async", optimizer="SGD", hyper={**SGD, "maximize": True, "lr": 0.01}),
    Cell(name="async-adamw", strategy="async", optimizer="AdamW", hyper=ADAM),
    Cell(name="ssp-adam", strategy="ssp:1", optimizer="Adam", hyper=ADAM, accumulate=2),
    Cell(name="rmsprop", strategy="async", optimizer="RMSprop", hyper={"lr": 0.01}),
]  # fmt: skip


class Net(nn.Module):
    """``sometimes`` is used by batches whose first input is positive only."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.sometimes = nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        if x[0, 0] > 0:
            hidden = hidden + torch.tanh(self.sometimes(hidden))
        out: torch.Tensor = self.last(hidden)
        return out


def build(cell: Cell) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    """Model, optimizer and loader: 16 batches of 4 samples and one of 3; a few have large inputs."""
    torch.manual_seed(SEED)
    model = Net().double()  # so that nothing but the arithmetic can differ
    optimizer = getattr(torch.optim, cell.optimizer)(model.parameters(), **cell.hyper)
    generator = torch.Generator().manual_seed(9)
    inputs = torch.randn(67, 6, generator=generator, dtype=torch.float64)
    inputs[::13] *= 8
    targets = torch.randint(0, 3, (67,), generator=generator)
    return model, optimizer, DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=True)
