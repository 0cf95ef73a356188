"""The naive, obviously right loops that paceline is held against. None of them uses paceline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from cells import (
    EPOCHS,
    LEARNING_RATE,
    Cell,
    build_loader,
    build_model,
    build_optimizer,
    loss_function,
)
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]
Parameters = dict[str, torch.Tensor]


def epochs_of(cell: Cell, seed: int) -> list[list[Batch]]:
    """What a plain loop would read, in order: construct the model first, as the script does."""
    build_model(cell, seed)
    loader = build_loader(cell)
    return [[(x, y) for x, y in loader] for _ in range(EPOCHS)]


def named(model: nn.Module) -> Parameters:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def plain_loop(cell: Cell, seed: int) -> Parameters:
    """One process, no library; a window's gradients are summed and divided by its true weight."""
    model = build_model(cell, seed)
    optimizer = build_optimizer(cell, model)
    loader, criterion = build_loader(cell), loss_function()
    for _ in range(EPOCHS):
        window: list[Batch] = []
        for batch in loader:
            window.append(tuple(batch))  # type: ignore[arg-type]
            if len(window) == cell.accumulate:
                _window_step(cell, model, optimizer, criterion, window)
                window = []
        if window:
            _window_step(cell, model, optimizer, criterion, window)
    return named(model)


def _window_step(
    cell: Cell,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    criterion: nn.Module,
    window: Sequence[Batch],
) -> None:
    optimizer.zero_grad()
    first = len(window[0][0])
    for inputs, targets in window:
        loss = criterion(model(inputs), targets)
        if len(inputs) != first:
            loss = loss * (len(inputs) / first)
        loss.backward()
    total = sum(len(inputs) for inputs, _ in window) / first
    if total != 1:
        for p in model.parameters():
            if p.grad is not None:
                p.grad /= total
    if cell.clip_norm:
        nn.utils.clip_grad_norm_(model.parameters(), cell.clip_norm)
    optimizer.step()


def workers_average_step_broadcast(cell: Cell, seed: int, workers: int) -> Parameters:
    """The course's loop: a list of workers, average of their gradients, one step, broadcast.

    Gradients are added in rank order and divided once: the definition of sync:server's bits.
    """
    model = build_model(cell, seed)
    optimizer = build_optimizer(cell, model)
    loader = build_loader(cell)
    unit = loader.batch_size
    assert unit is not None
    for _ in range(EPOCHS):
        batches: list[Batch] = [(x, y) for x, y in loader]
        stride = workers * cell.accumulate
        for base in range(0, len(batches), stride):
            joined = batches[base : base + stride]
            shares = [joined[rank::workers] for rank in range(workers)]
            gradients = [_gradients(model, share, unit) for share in shares if share]
            divisor = sum(len(x) for x, _ in joined) / unit
            _joint_step(cell, model, optimizer, gradients, divisor)
    return named(model)


def _gradients(model: nn.Module, share: Sequence[Batch], unit: float) -> list[torch.Tensor | None]:
    criterion = loss_function()
    for p in model.parameters():
        p.grad = None
    for inputs, targets in share:
        loss = criterion(model(inputs), targets)
        if len(inputs) != unit:
            loss = loss * (len(inputs) / unit)
        loss.backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def _joint_step(
    cell: Cell,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    gradients: Sequence[list[torch.Tensor | None]],
    divisor: float,
) -> None:
    for index, p in enumerate(model.parameters()):
        pushed = [g[index] for g in gradients if g[index] is not None]
        if not pushed:
            p.grad = None
            continue
        total = pushed[0].clone()  # type: ignore[union-attr]
        for gradient in pushed[1:]:
            total += gradient
        p.grad = total if divisor == 1 else total / divisor
    if cell.clip_norm:
        nn.utils.clip_grad_norm_(model.parameters(), cell.clip_norm)
    optimizer.step()


def one_large_batch(cell: Cell, seed: int, workers: int) -> Parameters:
    """One undistributed process that computes each update's samples as a single batch."""
    model = build_model(cell, seed)
    optimizer = build_optimizer(cell, model)
    loader, criterion = build_loader(cell), loss_function()
    for _ in range(EPOCHS):
        batches: list[Batch] = [(x, y) for x, y in loader]
        stride = workers * cell.accumulate
        for base in range(0, len(batches), stride):
            joined = batches[base : base + stride]
            inputs = torch.cat([x for x, _ in joined])
            targets = torch.cat([y for _, y in joined])
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            if cell.clip_norm:
                nn.utils.clip_grad_norm_(model.parameters(), cell.clip_norm)
            optimizer.step()
    return named(model)


def receive_subtract_reply(
    cell: Cell, seed: int, history: Callable[[], Sequence[tuple[str, int, int, tuple[int, ...]]]]
) -> Parameters:
    """The textbook parameter server, fed in the recorded serial order.

    ``history`` gives ("start", rank, pass, batches) and ("update", rank, pass, ()) in order. A
    worker receives the parameters at its start, computes there, and the server subtracts
    lr * gradient when its update comes (full-scale pushes).
    """
    server = build_model(cell, seed)
    replica = build_model(cell, seed)
    epochs = epochs_of(cell, seed)
    received: dict[int, tuple[Parameters, list[Batch]]] = {}
    for event, rank, pass_index, batches in history():
        if event == "start":
            mine = [epochs[pass_index][number] for number in batches]
            received[rank] = (named(server), mine)
            continue
        parameters, mine = received.pop(rank)
        replica.load_state_dict({**replica.state_dict(), **parameters})
        unit = len(mine[0][0])
        gradients = _gradients(replica, mine, unit)
        divisor = sum(len(x) for x, _ in mine) / unit
        with torch.no_grad():
            for p, g in zip(server.parameters(), gradients, strict=True):
                if g is not None:
                    p.add_(g if divisor == 1 else g / divisor, alpha=-LEARNING_RATE)
    return named(server)
