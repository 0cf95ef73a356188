"""DiLoCo in fragments as anybody would write it: N flat vectors in one process. Nothing of paceline."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from local_sgd.toy import Make, batch_of, loss_of


def flat(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """All trained parameters in one vector, in the optimizer's order."""
    groups = [p for group in optimizer.param_groups for p in group["params"]]
    return torch.cat([p.detach().flatten() for p in groups])


def put(vector: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    at = 0
    for p in [p for group in optimizer.param_groups for p in group["params"]]:
        p.data.copy_(vector[at : at + p.numel()].view(p.shape))
        at += p.numel()


class Streaming:
    """``world`` replicas, what each element's last exchange has left, and what was trained since."""

    def __init__(self, make: Make, world: int, fragments: int, outer: tuple[float, float]) -> None:
        made = [make(rank) for rank in range(world)]
        for model, _ in made[1:]:
            model.load_state_dict(made[0][0].state_dict())
        self.made = made
        self.common = flat(*made[0])
        self.momentum = torch.zeros_like(self.common)
        self.weights = torch.zeros(world, fragments, dtype=torch.float64)
        self.fragments = torch.arange(len(self.common)).tensor_split(fragments)
        self.outer = outer

    def train(self, rank: int, batches: Sequence[int]) -> None:
        model, optimizer = self.made[rank]
        sizes = [len(batch_of(batch)[0]) for batch in batches]
        losses = [loss_of(model, batch) * n for batch, n in zip(batches, sizes, strict=True)]
        optimizer.zero_grad()
        (sum(losses) / sum(sizes)).backward()  # type: ignore[union-attr]
        optimizer.step()
        self.weights[rank] += sum(sizes)

    def meet(self, fragment: int) -> None:
        """The outer Nesterov step on the elements of ``fragment``, which all replicas take over."""
        lr, momentum = self.outer
        own = self.fragments[fragment]
        vectors = [flat(*made) for made in self.made]
        weights = self.weights[:, fragment]
        if not weights.sum():
            return
        mean = sum(w * v[own] for w, v in zip(weights, vectors, strict=True)) / weights.sum()
        gradient = self.common[own] - mean
        self.momentum[own] = momentum * self.momentum[own] + gradient
        self.common[own] -= lr * (gradient + momentum * self.momentum[own])
        for vector, (_, optimizer) in zip(vectors, self.made, strict=True):
            vector[own] = self.common[own]
            put(vector, optimizer)
        self.weights[:, fragment] = 0


def streaming(
    make: Make, *, every: int, fragments: int, window: int, total: int, world: int, passes: int = 1,
    outer: tuple[float, float] = (0.7, 0.9), spoiled: tuple[tuple[int, int], ...] = (),
) -> Streaming:  # fmt: skip
    """Batch j is worker j mod N's; fragment 0, 1, ... meets after each ``every / fragments`` updates, and all
    of them as the pass ends."""
    run = Streaming(make, world, fragments, outer)
    updates, apart = -(-total // (world * window)), every // fragments
    for _ in range(passes):
        for update in range(updates):
            first = update * world * window
            for rank in range(world):
                own = range(first + rank, min(first + world * window, total), world)
                if own and not any((rank, batch) in spoiled for batch in own):
                    run.train(rank, list(own))
            if update + 1 == updates:
                for fragment in range(fragments):
                    run.meet(fragment)
            elif (update + 1) % apart == 0:
                run.meet((update + 1) // apart % fragments - 1)
    return run
