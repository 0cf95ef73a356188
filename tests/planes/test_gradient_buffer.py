"""Gradients in flat memory have the bits, and the Nones, of plain accumulation."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from paceline.errors import UsageError
from paceline.gradients.buffer import GradientBuffer
from paceline.gradients.layout import dense_stride, layout_of


def buffer_for(model: nn.Module) -> GradientBuffer:
    named = list(model.named_parameters())
    layout = layout_of([(name, tuple(p.shape), dense_stride(p), p.dtype) for name, p in named])
    memory = torch.zeros(layout.total_bytes, dtype=torch.uint8)
    return GradientBuffer(layout, memory, [parameter for _, parameter in named])


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().view(torch.uint8).numpy())


def test_the_sign_of_a_zero_survives() -> None:
    weight = nn.Parameter(torch.ones(2))
    model = nn.ParameterList([weight])
    buffer = buffer_for(model)
    buffer.arm()
    (weight * torch.tensor([-0.0, 1.0])).sum().backward()
    assert weight.grad is not None
    assert bits(weight.grad) == bits(torch.tensor([-0.0, 1.0]))


def test_it_accumulates_as_autograd_does_and_keeps_unused_none() -> None:
    torch.manual_seed(0)
    plain, ours = nn.Linear(5, 4), nn.Linear(5, 4)
    ours.load_state_dict(plain.state_dict())
    ours.extra = nn.Parameter(torch.ones(3))
    buffer = buffer_for(ours)
    buffer.arm()
    for step in range(3):
        inputs = torch.randn(7, 5, generator=torch.Generator().manual_seed(step))
        plain(inputs).pow(2).mean().backward()
        ours(inputs).pow(2).mean().backward()
    assert ours.extra.grad is None
    assert buffer.used() == b"\1\1\0"
    for name in ("weight", "bias"):
        mine, theirs = getattr(ours, name).grad, getattr(plain, name).grad
        assert bits(mine) == bits(theirs)
    buffer.clear()
    assert all(parameter.grad is None for parameter in ours.parameters())


def test_channels_last_gradients_keep_their_strides() -> None:
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    buffer = buffer_for(model)
    buffer.arm()
    model(torch.randn(1, 3, 5, 5)).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.stride() == model.weight.stride()


def test_a_weight_in_two_reentrant_checkpoints_is_counted_once_per_use() -> None:
    torch.manual_seed(0)
    plain, ours = nn.Linear(4, 4), nn.Linear(4, 4)
    ours.load_state_dict(plain.state_dict())
    buffer = buffer_for(ours)
    buffer.arm()
    inputs = torch.randn(3, 4, requires_grad=True)
    for model in (plain, ours):
        hidden = checkpoint(model, inputs, use_reentrant=True)
        checkpoint(model, hidden, use_reentrant=True).pow(2).sum().backward()
    assert ours.weight.grad is not None
    assert plain.weight.grad is not None
    assert bits(ours.weight.grad) == bits(plain.weight.grad)


def test_the_first_bad_parameter_is_found_and_forgotten_once_discarded() -> None:
    model = nn.Linear(2, 2)
    buffer = buffer_for(model)
    buffer.arm()
    model(torch.tensor([[float("inf"), 1.0]])).sum().backward()
    assert buffer.first_bad() == 0
    buffer.discard()
    assert buffer.first_bad() is None
    assert buffer.used() == b"\0\0"


def test_a_gradient_outside_step_names_the_line_to_delete() -> None:
    model = nn.Linear(2, 2)
    buffer_for(model)
    with pytest.raises(UsageError, match=r"Delete the line `loss.backward\(\)`"):
        model(torch.ones(1, 2)).sum().backward()
