"""Gradients in flat memory have the bits, and the Nones, of plain accumulation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from paceline.errors import UsageError
from paceline.gradients.buckets import buckets_of
from paceline.gradients.buffer import GradientBuffer
from paceline.gradients.layout import FlatLayout, dense_stride, layout_of
from paceline.gradients.norms import sum_of_squares


def layout_for(model: nn.Module) -> FlatLayout:
    named = model.named_parameters()
    return layout_of([(name, tuple(p.shape), dense_stride(p), p.dtype) for name, p in named])


def buffer_for(
    model: nn.Module, *, bucket_bytes: int = 1, on_ready: Callable[[int], None] = lambda _: None
) -> GradientBuffer:
    """By default every parameter is a bucket. Memory holds what an earlier window could have left."""
    layout = layout_for(model)
    memory = torch.zeros(layout.total_bytes, dtype=torch.uint8)
    for view in layout.views(memory):
        view.fill_(float("nan"))
    return GradientBuffer(
        layout,
        memory,
        list(model.parameters()),
        bucket_bytes=bucket_bytes,
        on_ready=on_ready,
        gauge=sum_of_squares,
    )


def three_layers() -> nn.Sequential:
    """Parameters 0.weight, 1.weight, 2.weight: one each for three buckets of one byte."""
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(3, 3, bias=False) for _ in range(3)])


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().view(torch.uint8).numpy())


def test_the_sign_of_a_zero_survives() -> None:
    weight = nn.Parameter(torch.ones(2))
    model = nn.ParameterList([weight])
    buffer = buffer_for(model)
    buffer.arm(last=False)
    (weight * torch.tensor([-0.0, 1.0])).sum().backward()
    assert weight.grad is not None
    assert bits(weight.grad) == bits(torch.tensor([-0.0, 1.0]))


def test_it_accumulates_as_autograd_does_and_keeps_unused_none() -> None:
    torch.manual_seed(0)
    plain, ours = nn.Linear(5, 4), nn.Linear(5, 4)
    ours.load_state_dict(plain.state_dict())
    ours.extra = nn.Parameter(torch.ones(3))
    buffer = buffer_for(ours)
    buffer.arm(last=False)
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
    buffer.arm(last=False)
    model(torch.randn(1, 3, 5, 5)).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.stride() == model.weight.stride()


def test_a_weight_in_two_reentrant_checkpoints_is_counted_once_per_use() -> None:
    torch.manual_seed(0)
    plain, ours = nn.Linear(4, 4), nn.Linear(4, 4)
    ours.load_state_dict(plain.state_dict())
    buffer = buffer_for(ours)
    buffer.arm(last=False)
    inputs = torch.randn(3, 4, requires_grad=True)
    for model in (plain, ours):
        hidden = checkpoint(model, inputs, use_reentrant=True)
        checkpoint(model, hidden, use_reentrant=True).pow(2).sum().backward()
    assert ours.weight.grad is not None
    assert plain.weight.grad is not None
    assert bits(ours.weight.grad) == bits(plain.weight.grad)


def test_buckets_are_cut_from_the_end_and_hold_every_byte_once() -> None:
    layout = layout_of(
        [
            ("a", (8,), (1,), torch.float32),
            ("b", (8,), (1,), torch.float64),
            ("c", (40,), (1,), torch.float32),
            ("d", (3,), (1,), torch.float32),
            ("e", (8,), (1,), torch.float64),
        ]
    )
    buckets = buckets_of(layout, 128)
    assert [bucket.places for bucket in buckets] == [(2, 3), (1, 4), (0,)]
    spans = sorted((bucket.start_bytes, bucket.stop_bytes) for bucket in buckets)
    assert spans[0][0] == 0
    assert spans[-1][1] == layout.total_bytes
    assert all(one[1] == two[0] for one, two in pairwise(spans))
    assert len(buckets_of(layout, layout.total_bytes)) == 2  # one of each type


def test_buckets_follow_the_order_in_memory_not_that_of_the_numbers() -> None:
    names = ["0.weight", "1.weight", "0.bias", "1.bias"]  # as where only weights decay
    entries = [(name, (16,), (1,), torch.float32) for name in names]
    layout = layout_of(entries, order=[0, 2, 1, 3])
    assert [slot.name for slot in layout.slots] == names
    assert [slot.offset_bytes for slot in layout.slots] == [0, 128, 64, 192]
    assert [bucket.places for bucket in buckets_of(layout, 128)] == [(1, 3), (0, 2)]


def test_buckets_become_ready_in_order_within_the_last_backward_only() -> None:
    model = three_layers()
    seen: list[tuple[int, int]] = []
    buffer = buffer_for(model, on_ready=lambda index: seen.append((index, sum(buffer.used()))))
    buffer.arm(last=False)
    model(torch.ones(1, 3)).sum().backward()
    assert seen == []
    buffer.arm(last=True)
    # The first layer's gradient alone comes first: its bucket, the last one, waits.
    model[0](torch.ones(1, 3)).sum().backward()
    assert seen == []
    model[1:](torch.ones(1, 3)).sum().backward()
    assert seen == [(0, 3), (1, 3), (2, 3)]
    buffer.clear()
    buffer.arm(last=True)
    model(torch.ones(1, 3)).sum().backward()
    assert seen[3:] == [(0, 1), (1, 2), (2, 3)]


def test_flush_makes_ready_what_is_left_and_fills_it_with_zeros() -> None:
    model = three_layers()
    seen: list[int] = []
    buffer = buffer_for(model, on_ready=seen.append)
    buffer.arm(last=True)
    model[2](torch.ones(1, 3)).sum().backward()
    assert buffer.ready == len(seen) == 1
    buffer.flush(fill_unused=True)
    assert seen == [0, 1, 2]
    assert buffer.first_bad() is None
    assert [bool(vector.any()) for vector in buffer.vectors] == [True, False, False]
    assert model[0].weight.grad is None


def test_memory_of_an_earlier_window_is_not_judged() -> None:
    model = three_layers()
    buffer = buffer_for(model, bucket_bytes=10**6)
    buffer.arm(last=True)
    model[1](torch.ones(1, 3)).sum().backward()
    buffer.flush(fill_unused=False)
    assert bool(buffer.vectors[0].isnan().any())
    assert buffer.first_bad() is None


@pytest.mark.parametrize("bucket_bytes", [1, 10**6])
@pytest.mark.parametrize("spoiled", [0, 2])
def test_the_first_bad_parameter_is_named_whatever_becomes_of_the_memory(
    bucket_bytes: int, spoiled: int
) -> None:
    model = three_layers()
    buffer = buffer_for(
        model, bucket_bytes=bucket_bytes, on_ready=lambda index: buffer.vectors[index].zero_()
    )
    buffer.arm(last=True)
    handle = model[spoiled].weight.register_hook(lambda gradient: gradient * float("nan"))
    model(torch.ones(1, 3)).sum().backward()
    handle.remove()
    assert buffer.first_bad() == spoiled
    buffer.clear()
    assert buffer.first_bad() is None


def test_finite_gradients_whose_sum_overflows_are_not_bad() -> None:
    weight = nn.Parameter(torch.ones(4))
    buffer = buffer_for(nn.ParameterList([weight]))
    buffer.arm(last=True)
    (weight * 3e38).sum().backward()
    assert buffer.first_bad() is None


def test_what_was_discarded_is_zero_and_not_used() -> None:
    model = three_layers()
    buffer = buffer_for(model)
    buffer.arm(last=False)
    model(torch.full((1, 3), float("inf"))).sum().backward()
    buffer.discard()
    buffer.flush(fill_unused=True)
    assert buffer.first_bad() is None
    assert buffer.used() == b"\0\0\0"
    assert not any(vector.any() for vector in buffer.vectors)


def test_a_gradient_that_comes_again_after_its_bucket_is_refused_and_before_it_adds_up() -> None:
    for bucket_bytes in (1, 10**6):
        model = three_layers()
        buffer = buffer_for(model, bucket_bytes=bucket_bytes)
        buffer.arm(last=True)
        model[2](torch.ones(1, 3)).sum().backward()
        again = model[2](torch.ones(1, 3)).sum()
        if bucket_bytes == 1:
            with pytest.raises(UsageError, match=r"2.weight came twice .* use_reentrant=False"):
                again.backward()
        else:
            again.backward()
            assert torch.equal(model[2].weight.grad, torch.full((3, 3), 2.0))


def test_a_gradient_outside_step_names_the_line_to_delete() -> None:
    model = nn.Linear(2, 2)
    buffer_for(model)
    with pytest.raises(UsageError, match=r"Delete the line `loss.backward\(\)`"):
        model(torch.ones(1, 2)).sum().backward()


@pytest.mark.parametrize("features", [3, 300])  # judged as a bucket, and one by one
def test_the_gauge_is_of_what_was_accumulated_last(features: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(features, features) for _ in range(2)])
    buffer = buffer_for(model, bucket_bytes=10**9)
    inputs = torch.randn(4, features)
    for backwards in (1, 2):
        for number in range(backwards):
            buffer.arm(last=number == backwards - 1)
            model(inputs).pow(2).mean().backward()
        buffer.flush(fill_unused=True)
        norm = float(nn.utils.get_total_norm([one.grad for one in model.parameters()]))
        assert buffer.gauged() == pytest.approx(norm**2, rel=1e-5)
        buffer.clear()
    buffer.arm(last=True)
    model[1](inputs).pow(2).mean().backward()
    model[1](inputs).pow(2).mean().backward()  # before its bucket is ready: it adds up
    model[0](inputs).pow(2).mean().backward()
    norm = float(nn.utils.get_total_norm([one.grad for one in model.parameters()]))
    assert buffer.gauged() == pytest.approx(norm**2, rel=1e-5)
