"""A toy to train, and the obviously right loops: N replicas in one process. Nothing of paceline."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

UNIT = 4.0
_SEEDED = threading.Lock()  # ranks are threads, which share torch's random stream
Made = tuple[nn.Module, torch.optim.Optimizer]
Make = Callable[[int], Made]


def maker(name: str, **hyper: Any) -> Make:
    """Builds a model in float64 and ``torch.optim``'s ``name`` over two groups; of each rank another."""

    def make(rank: int) -> Made:
        with _SEEDED:
            torch.manual_seed(rank)
            model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
        groups = [{"params": list(model[2].parameters())}, {"params": list(model[0].parameters())}]
        return model, getattr(torch.optim, name)(groups, **hyper)

    return make


def batch_of(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Batch ``number``: 3 to 5 samples."""
    generator = torch.Generator().manual_seed(1000 + number)
    size = 3 + number % 3
    return (
        torch.randn(size, 6, generator=generator, dtype=torch.float64),
        torch.randn(size, 3, generator=generator, dtype=torch.float64),
    )


def loss_of(model: nn.Module, batch: int) -> torch.Tensor:
    dtype = next(model.parameters()).dtype
    inputs, targets = (one.to(dtype) for one in batch_of(batch))
    return nn.functional.mse_loss(model(inputs), targets)


class Replicas:
    """``world`` copies of rank 0's model with an optimizer each, and what they set out from."""

    def __init__(self, make: Make, world: int) -> None:
        first, _ = make(0)
        made = [make(rank) for rank in range(world)]
        for model, _ in made:
            model.load_state_dict(first.state_dict())
        self.models = [model for model, _ in made]
        self.optimizers = [optimizer for _, optimizer in made]
        self.anchor = [p.detach().clone() for p in first.parameters()]
        self.outer = [torch.zeros_like(p) for p in self.anchor]
        self.weights = [0.0] * world

    def step(self, rank: int, batches: list[int], clip_norm: float | None = None) -> None:
        """One window of one rank."""
        sizes = [len(batch_of(batch)[0]) for batch in batches]
        losses = [
            loss_of(self.models[rank], batch) * n for batch, n in zip(batches, sizes, strict=True)
        ]
        self.optimizers[rank].zero_grad()
        (sum(losses) / sum(sizes)).backward()  # type: ignore[union-attr]
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(self.models[rank].parameters(), clip_norm)
        self.optimizers[rank].step()
        self.weights[rank] += sum(sizes)

    def meet(self, lr: float = 1.0, momentum: float = 0.0) -> None:
        """Outer SGD with Nesterov momentum on anchor - mean; (1, 0): all become the mean."""
        total = sum(self.weights)
        everyone = zip(*(model.parameters() for model in self.models), strict=True)
        for place, replicas in enumerate(everyone):
            pairs = zip(replicas, self.weights, strict=True)
            mean = sum(p.detach() * weight for p, weight in pairs) / total
            gradient = self.anchor[place] - mean
            self.outer[place] = momentum * self.outer[place] + gradient
            self.anchor[place] = self.anchor[place] - lr * (gradient + momentum * self.outer[place])
            for replica in replicas:
                replica.data.copy_(self.anchor[place])
        self.weights = [0.0] * len(self.weights)


def naive(
    make: Make, *, every: int, window: int, total: int, world: int, passes: int = 1,
    outer: tuple[float, float] = (1.0, 0.0), clip_norm: float | None = None,
    spoiled: tuple[tuple[int, int], ...] = (),
) -> list[torch.Tensor]:  # fmt: skip
    """Local steps on batches j mod N, and a meeting after every ``every`` updates and at each pass's end."""
    replicas = Replicas(make, world)
    updates = -(-total // (world * window))
    for _ in range(passes):
        for update in range(updates):
            first = update * world * window
            for rank in range(world):
                own = range(first + rank, min(first + world * window, total), world)
                if own and not any((rank, batch) in spoiled for batch in own):
                    replicas.step(rank, list(own), clip_norm)
            if (update + 1) % every == 0 or update + 1 == updates:
                replicas.meet(*outer)
    return replicas.anchor


def sync(make: Make, *, window: int, total: int, world: int) -> list[torch.Tensor]:
    """One model that steps with the mean over all batches of an update."""
    model, optimizer = copy.deepcopy(make(0))
    replicas = Replicas(lambda rank: (model, optimizer), 1)
    for first in range(0, total, world * window):
        replicas.step(0, list(range(first, min(first + world * window, total))))
    return [p.detach() for p in model.parameters()]
