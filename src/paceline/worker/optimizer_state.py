"""An optimizer's state, moved between the user's optimizer and the server's by parameter order.

State is keyed by a parameter's place among the trainable ones, which is the same on every side.
Learning rates and other hyper-parameters of the user's groups are never touched by a load.
"""

from __future__ import annotations

import io
from typing import Any

import torch

from paceline.worker.manifest import Trainable, hyperparameters
from paceline.worker.training import Training


def dump_state(optimizer: torch.optim.Optimizer, trainables: list[Trainable]) -> bytes | None:
    """The state as ``torch.load(weights_only=True)`` reads it; None if there is none yet."""
    held = {
        place: dict(optimizer.state[one.parameter])
        for place, one in enumerate(trainables)
        if one.parameter in optimizer.state
    }
    if not held:
        return None
    groups: list[dict[str, Any]] = hyperparameters(optimizer)
    for number, group in enumerate(groups):
        group["params"] = [place for place, one in enumerate(trainables) if one.group == number]
    file = io.BytesIO()
    torch.save({"state": held, "param_groups": groups}, file)
    return file.getvalue()


def load_state(optimizer: torch.optim.Optimizer, trainables: list[Trainable], state: bytes) -> None:
    """Put ``state`` (a ``state_dict`` over the trainable parameters) into the user's optimizer."""
    loaded = torch.load(io.BytesIO(state), weights_only=True)
    for place, one in enumerate(trainables):
        if place in loaded["state"]:
            optimizer.state[one.parameter] = loaded["state"][place]
        else:
            optimizer.state.pop(one.parameter, None)


def step(training: Training) -> None:
    """One step of the user's optimizer, learning rates times the launcher's factor meanwhile."""
    optimizer, factor = training.optimizer, training.lr_factor
    if factor == 1.0:
        optimizer.step()
        return
    kept = [group["lr"] for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, kept, strict=True):
        group["lr"] = rate * factor
    try:
        optimizer.step()
    finally:
        for group, rate in zip(optimizer.param_groups, kept, strict=True):
            group["lr"] = rate
