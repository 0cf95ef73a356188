"""An optimizer's state, moved between the user's optimizer and the server's by parameter order.

State is keyed by a parameter's place among the trainable ones, which is the same on every side.
Learning rates and other hyper-parameters of the user's groups are never touched by a load.
"""

from __future__ import annotations

import io
from typing import Any

import torch

from paceline.gradients.precision.masters import narrowed, widened
from paceline.gradients.precision.mode import SIXTEEN_BIT
from paceline.worker.manifest import Trainable, hyperparameters
from paceline.worker.training import Training


def dump_state(optimizer: torch.optim.Optimizer, trainables: list[Trainable]) -> bytes | None:
    """The state as ``torch.load(weights_only=True)`` reads it; None if there is none yet.

    That of 16-bit parameters is given as that of their float32 masters.
    """
    held = {
        place: widened(optimizer.state[stepped])
        for place, stepped in enumerate(held_by(optimizer, trainables))
        if stepped in optimizer.state
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
    for place, stepped in enumerate(held_by(optimizer, trainables)):
        if place in loaded["state"]:
            optimizer.state[stepped] = loaded["state"][place]
        else:
            optimizer.state.pop(stepped, None)


def narrow_state(optimizer: torch.optim.Optimizer, trainables: list[Trainable]) -> None:
    """Let the state that came from float32 masters be one of the user's 16-bit parameters."""
    for one in trainables:
        if one.parameter.dtype in SIXTEEN_BIT and one.parameter in optimizer.state:
            state = narrowed(optimizer.state[one.parameter], one.parameter.dtype)
            optimizer.state[one.parameter] = state


def step(training: Training, factor: float) -> None:
    """One step of the user's optimizer, learning rates times ``factor`` meanwhile."""
    optimizer = training.optimizer
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


def held_by(optimizer: torch.optim.Optimizer, trainables: list[Trainable]) -> list[torch.Tensor]:
    """What the optimizer holds for each: the parameter, or (while there is one) its master."""
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return [held[one.index] for one in trainables]
