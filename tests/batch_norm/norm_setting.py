"""What is trained, on what: shared by the script and by the test that computes in one process."""

from __future__ import annotations

import torch
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]
SIZES = (4, 2, 3, 2, 5, 4, 2, 3, 6, 3, 2)
WITH_ONES = (4, 1, 3, 2, 5, 4, 1, 1, 6, 3, 2)


def batches(sizes: tuple[int, ...] = SIZES) -> list[Batch]:
    """Batches of that many samples, in float64."""
    generator = torch.Generator().manual_seed(4)
    return [
        (
            torch.randn(size, 2, 5, 5, generator=generator, dtype=torch.float64) + place % 3,
            torch.randint(0, 3, (size,), generator=generator),
        )
        for place, size in enumerate(sizes)
    ]


def net() -> nn.Module:
    torch.manual_seed(6)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets)
