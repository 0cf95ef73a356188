"""The naive loops that the recipe is held against: lists, sums and torch's own optimizers; no paceline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from recipe_cells import EPOCHS, WARMUP, Cell, build
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]
Parameters = dict[str, torch.Tensor]
History = Sequence[tuple[str, int, int, tuple[int, ...]]]


class Clip:
    """Twice the weighted mean of all clipped norms so far (weights 0.99^age), after the first five."""

    def __init__(self, clip_norm: float | None) -> None:
        self.norms: list[float] = []
        self.clip_norm = clip_norm

    def __call__(self, gradients: list[torch.Tensor]) -> None:
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
        limit = self.clip_norm or math.inf
        if len(self.norms) >= 5:
            weights = [0.99**age for age in range(len(self.norms))][::-1]
            mean = sum(w * n for w, n in zip(weights, self.norms, strict=True)) / sum(weights)
            limit = min(limit, 2 * mean)
        self.norms.append(min(norm, limit))
        if norm > limit:
            for gradient in gradients:
                gradient *= limit / (norm + 1e-6)  # torch's formula


def rising(progress: int, workers: int, window: int) -> float:
    return min(1.0, (1 + progress / (workers * window)) / WARMUP)


def epochs(cell: Cell) -> list[list[Batch]]:
    """What a plain loop reads, epoch by epoch."""
    _, _, loader = build(cell)
    return [[(x, y) for x, y in loader] for _ in range(EPOCHS)]


def joint(cell: Cell, workers: int) -> Parameters:
    """All workers' windows as one large batch: Nesterov's SGD, warm-up, clip."""
    model, optimizer, _ = build(cell)
    group = optimizer.param_groups[0]
    if cell.optimizer == "SGD":
        group["nesterov"] = True
    clip, rate, progress, stride = Clip(cell.clip_norm), group["lr"], 0, workers * cell.accumulate
    for batches in epochs(cell):
        for base in range(0, len(batches), stride):
            mine = batches[base : base + stride]
            for p, g in zip(model.parameters(), gradients(model, mine), strict=True):
                p.grad = g
            clip([p.grad for p in model.parameters() if p.grad is not None])
            group["lr"] = rate * rising(progress, workers, cell.accumulate)
            optimizer.step()
            progress += len(mine)
    return named(model)


def apart(cell: Cell, workers: int, history: History) -> Parameters:
    """Each push by itself, in the recorded order; ``history`` as in tests/equality."""
    server, optimizer, _ = build(cell)
    replica, _, _ = build(cell)
    _leave_to_workers(cell, optimizer, workers)
    group = optimizer.param_groups[0]
    rate, progress, read = group["lr"], 0, epochs(cell)
    clips = [Clip(cell.clip_norm) for _ in range(workers)]
    kept: list[dict[int, Any]] = [{} for _ in range(workers)]
    weights = [4.0 * cell.accumulate] * workers
    running: dict[int, tuple[Parameters, list[Batch], float]] = {}
    for event, rank, number, batches in history:
        if event == "start":
            mine = [read[number][batch] for batch in batches]
            running[rank] = named(server), mine, rising(progress, workers, cell.accumulate)
            continue
        seen, mine, factor = running.pop(rank)
        replica.load_state_dict(seen)
        found = gradients(replica, mine)
        clips[rank]([g for g in found if g is not None])
        weights[rank] = float(sum(len(x) for x, _ in mine))
        share = 1.0 if cell.strategy.endswith("sum") else weights[rank] / sum(weights)
        for place, (p, g) in enumerate(zip(server.parameters(), found, strict=True)):
            held = list(seen.values())[place]
            p.grad = None if g is None else pushed(cell, place, g, held, kept[rank])
        group["lr"] = rate * factor * share
        optimizer.step()
        progress += len(mine)
    return named(server)


def pushed(
    cell: Cell, place: int, g: torch.Tensor, held: torch.Tensor, kept: dict[int, Any]
) -> torch.Tensor:
    """The gradient and the worker's own momentum, in Nesterov's form."""
    if cell.optimizer == "RMSprop":
        return g
    if cell.optimizer != "AdamW":
        g = (-g if cell.hyper.get("maximize") else g) + cell.hyper.get("weight_decay", 0) * held
    if cell.optimizer == "SGD":
        kept[place] = cell.hyper["momentum"] * kept.get(place, torch.zeros_like(g)) + g
        return g + cell.hyper["momentum"] * kept[place]
    before, count = kept.get(place, (torch.zeros_like(g), 0))
    kept[place] = 0.9 * before + 0.1 * g, count + 1
    return (0.9 * kept[place][0] + 0.1 * g) / (1 - 0.9 ** (count + 2))


def _leave_to_workers(cell: Cell, optimizer: torch.optim.Optimizer, workers: int) -> None:
    group = optimizer.param_groups[0]
    if cell.optimizer == "SGD":
        group.update(momentum=0.0, weight_decay=0.0, maximize=False)
    if cell.optimizer == "Adam":
        group.update(weight_decay=0.0)
    if cell.optimizer.startswith("Adam"):
        group["betas"] = (0.0, 0.999 ** (1 / workers))


def gradients(model: nn.Module, batches: Sequence[Batch]) -> list[torch.Tensor | None]:
    """Of the mean loss over all samples of ``batches``, one batch after the other."""
    total = sum(len(x) for x, _ in batches)
    model.zero_grad()
    for x, y in batches:
        (nn.functional.cross_entropy(model(x), y) * (len(x) / total)).backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def named(model: nn.Module) -> Parameters:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def histories(decisions: Sequence[Any]) -> Iterator[History]:
    """Starts and updates of each Worker's life on the server plane, in serial order."""
    from paceline import events

    life: list[tuple[str, int, int, tuple[int, ...]]] = []
    passes: dict[int, int] = {}
    first = 0
    for one in decisions:
        if isinstance(one, events.Join) and life:
            yield life
            life, passes = [], {}
        elif isinstance(one, events.Request):
            first = first if passes else one.pass_id
            passes[one.rank] = one.pass_id
        elif isinstance(one, events.Start):
            life.append(("start", one.rank, passes[one.rank] - first, one.batches))
        elif isinstance(one, events.Update):
            life.extend(("update", rank, 0, ()) for rank in one.ranks)
    yield life
