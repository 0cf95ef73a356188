"""A toy to train: a small model, batches by number, and the plain loops to hold the planes against."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

UNIT = 4.0


class Toy(nn.Module):
    """Two layers; ``bias_of_third`` batches only is used by every third batch, ``unused`` never."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.second = nn.Linear(5, 3)
        self.unused = nn.Parameter(torch.ones(7))
        self.sometimes = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, inputs: torch.Tensor, batch: int) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs))
        output: torch.Tensor = self.second(hidden)
        return output * self.sometimes if batch % 3 == 0 else output


def build(optimizer: list[Any], *, seed: int) -> tuple[Toy, torch.optim.Optimizer]:
    """A toy and ``[class, hyper-parameters]`` of torch.optim over two groups of its parameters."""
    torch.manual_seed(seed)
    model = Toy()
    name, hyper = optimizer
    groups = [
        {"params": [model.unused, model.frozen, *model.second.parameters()]},
        {"params": [*model.first.parameters(), model.sometimes], "weight_decay": 0.0},
    ]
    return model, getattr(torch.optim, name)(groups, **hyper)


def batch_of(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Batch ``number``: 3 to 5 samples."""
    generator = torch.Generator().manual_seed(1000 + number)
    size = 3 + number % 3
    return (
        torch.randn(size, 6, generator=generator),
        torch.randn(size, 3, generator=generator),
    )


def gradient_step(
    model: nn.Module, batch: int, weight: float, unit: float | None, *, spoiled: bool = False
) -> tuple[float, float]:
    """Forward and backward of one micro-batch; the window's weight so far and its unit."""
    inputs, targets = batch_of(batch)
    own = float(len(inputs))
    unit = unit or own
    loss = nn.functional.mse_loss(model(inputs, batch), targets)
    if own != unit:
        loss = loss * (own / unit)
    if spoiled:
        loss = loss * float("nan")
    loss.backward()
    return weight + own, unit


def parameters_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def hexed(tensor: torch.Tensor) -> list[str]:
    """Every bit of it, as text."""
    return [float(value).hex() for value in tensor.reshape(-1)]


def from_hex(values: list[str]) -> torch.Tensor:
    return torch.tensor([float.fromhex(value) for value in values])


def joint_oracle(cell: dict[str, Any], world_size: int) -> dict[str, list[str]]:
    """The course's loop: each update is the mean over workers, summed in rank order."""
    model, optimizer = build(cell["optimizer"], seed=0)
    names = dict(model.named_parameters())
    window, total = cell["window"], cell["total"]
    for first in range(0, total, world_size * window):
        sums: dict[str, torch.Tensor] = {}
        weight = 0.0
        for rank in range(world_size):
            mine = [first + m * world_size + rank for m in range(window)]
            gradients, own = _window(model, [batch for batch in mine if batch < total])
            weight += own
            for name, gradient in gradients.items():
                sums[name] = sums[name].add_(gradient) if name in sums else gradient
        for name, gradient in sums.items():
            names[name].grad = gradient.div_(weight / UNIT) if weight != UNIT else gradient
        if cell.get("clip_norm"):
            nn.utils.clip_grad_norm_(in_order(optimizer), cell["clip_norm"])
        optimizer.step()
        optimizer.zero_grad()
    return {name: hexed(value) for name, value in parameters_of(model).items()}


def _window(model: nn.Module, batches: list[int]) -> tuple[dict[str, torch.Tensor], float]:
    weight = 0.0
    for batch in batches:
        weight, _ = gradient_step(model, batch, weight, UNIT)
    gradients = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad
            parameter.grad = None
    return gradients, weight


def in_order(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Its parameters in the order in which norms are taken."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
