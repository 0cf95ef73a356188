"""What one worker says of its state, fact by fact, for others to compare with theirs.

Every fact is about one thing that must be equal on all ranks, named as an error is to name it.
Knows model and optimizer; not who compares, when, or what may differ at the time: that is told.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from paceline.gradients.checksum import checksums, shown
from paceline.transport.witness_messages import Fact
from paceline.worker.manifest import hyperparameters

Field = tuple[int, str]
"""An optimizer group's number and the name of a hyper-parameter in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """Which tensors can be compared. ``parameters``, ``state``: whether the trained parameters and the
    optimizer's state can; ``moving``: names of the buffers that cannot."""

    parameters: bool
    state: bool
    moving: Container[str] = field(default_factory=frozenset)


def settings(
    model: nn.Module, optimizer: torch.optim.Optimizer, scheduled: Container[Field] = frozenset()
) -> dict[str, Fact]:
    """Facts about everything but values of tensors: causes, rather than effects, of a difference.

    ``scheduled``: hyper-parameters whose values cannot be compared now.
    """
    facts = dict(_forms(model)) | dict(_modes(model))
    facts["the optimizer's class"] = plain(type(optimizer).__name__)
    return facts | dict(_groups(optimizer, scheduled))


def tensors(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    trained: Mapping[str, nn.Parameter],
    scope: Scope,
) -> dict[str, Fact]:
    """Facts about the bits of tensors; the trained parameters, which all else ends in, come last."""
    chosen: dict[str, torch.Tensor] = {
        f"parameter {name}": parameter
        for name, parameter in model.named_parameters()
        if name not in trained
    }
    for name, buffer in model.named_buffers():
        if name not in scope.moving:
            chosen[f"buffer {name}"] = buffer
    if scope.state:
        chosen |= _state(optimizer, trained)
    if scope.parameters:
        chosen |= {f"parameter {name}": parameter for name, parameter in trained.items()}
    return facts_of(chosen)


def facts_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, Fact]:
    """A fact about the bits of each tensor."""
    values = checksums(list(tensors.values()))
    return {
        name: Fact(value=value, shown=shown(tensor, value))
        for (name, tensor), value in zip(tensors.items(), values, strict=True)
    }


def plain(value: object) -> Fact:
    """A fact about a number, a word or a list of them."""
    return Fact(value=repr(value), shown=repr(value))


def _forms(model: nn.Module) -> Iterator[tuple[str, Fact]]:
    """Types, shapes and frozen flags, and with them which parameters and buffers there are."""
    for name, parameter in model.named_parameters():
        yield f"the type of parameter {name}", _form(parameter)
        yield f"requires_grad of parameter {name}", plain(parameter.requires_grad)
    for name, buffer in model.named_buffers():
        yield f"the type of buffer {name}", _form(buffer)


def _form(tensor: torch.Tensor) -> Fact:
    text = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
    return Fact(value=text, shown=text)


def _modes(model: nn.Module) -> Iterator[tuple[str, Fact]]:
    for name, module in model.named_modules():
        mode = "train" if module.training else "eval"
        yield f"the mode of {name or 'the model'}", Fact(value=mode, shown=mode)


def _groups(
    optimizer: torch.optim.Optimizer, scheduled: Container[Field]
) -> Iterator[tuple[str, Fact]]:
    for number, group in enumerate(hyperparameters(optimizer)):
        for name, value in group.items():
            text = repr(value)
            loose = (number, name) in scheduled
            yield (
                f"{name} of optimizer group {number}",
                Fact(value=None if loose else text, shown=text),
            )


def _state(
    optimizer: torch.optim.Optimizer, trained: Mapping[str, nn.Parameter]
) -> dict[str, torch.Tensor]:
    return {
        f"optimizer state {key} of {name}": torch.as_tensor(value)
        for name, parameter in trained.items()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, torch.Tensor | int | float)
    }
