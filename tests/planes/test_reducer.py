"""What a reducer sends, when, and what its times say; ranks are threads' or stand-ins' sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from paceline.gradients.layout import FlatLayout, dense_stride, layout_of
from paceline.worker.plane import BucketTimes
from paceline.worker.reducer import Reducer

BALLOT = [3.0, 1.0, 0.0]


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Wire:
    """A rank that brings the same as this one. A sum is there ``link_s`` after it began."""

    device = torch.device("cpu")

    def __init__(self, clock: Clock, *, link_s: float = 0.0) -> None:
        self.clock = clock
        self.link_s = link_s
        self.sizes: list[int] = []

    def start_sum(self, tensor: torch.Tensor, on_done: Callable[[], None] | None) -> Any:
        tensor.mul_(2)
        self.sizes.append(tensor.numel())
        return self.clock.now_s + self.link_s, on_done

    def finish(self, work: Any) -> None:
        end_s, on_done = work
        self.clock.now_s = max(self.clock.now_s, end_s)
        if on_done is not None:
            on_done()


def layout_for(model: nn.Module) -> FlatLayout:
    named = model.named_parameters()
    return layout_of([(name, tuple(p.shape), dense_stride(p), p.dtype) for name, p in named])


def reducer_for(
    model: nn.Module, clock: Clock, wire: Wire, *, parcel_bytes: int = 2**30
) -> Reducer:
    return Reducer(
        wire,
        layout_for(model),
        list(model.parameters()),
        parcel_bytes=parcel_bytes,
        ballot_size=len(BALLOT),
        clock_s=clock,
    )


def layers(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(4, 4, bias=False, dtype=dtype) for _ in range(3)])


def window(reducer: Reducer, model: nn.Module) -> Any:
    reducer.before_backward(last=True)
    dtype = next(model.parameters()).dtype
    model(torch.ones(1, 4, dtype=dtype)).sum().backward()
    reducer.buffer.flush(fill_unused=True)
    reducer.send(BALLOT)
    return reducer.finish()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("parcel_bytes", "sends"), [(2**30, 1), (1, 3)])
def test_the_ballot_rides_with_the_last_parcel(
    dtype: torch.dtype, parcel_bytes: int, sends: int
) -> None:
    clock, model, plain = Clock(), layers(dtype), layers(dtype)
    wire = Wire(clock)
    reducer = reducer_for(model, clock, wire, parcel_bytes=parcel_bytes)
    plain(torch.ones(1, 4, dtype=dtype)).sum().backward()
    for _ in range(2):
        reduced = window(reducer, model)
        assert reduced.ballots == [6.0, 2.0, 0.0]
        for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            assert torch.equal(mine.grad, 2 * theirs.grad)
        norm = float(nn.utils.get_total_norm([one.grad for one in model.parameters()]))
        assert reduced.norm == pytest.approx(norm, rel=1e-6)
        reducer.buffer.clear()
    assert len(wire.sizes) == 2 * sends


def test_beside_a_small_type_the_ballot_travels_alone() -> None:
    clock, model = Clock(), layers(torch.bfloat16)
    wire = Wire(clock)
    reducer = reducer_for(model, clock, wire)
    reduced = window(reducer, model)
    assert reduced.ballots == [6.0, 2.0, 0.0]
    assert len(wire.sizes) == 2
    assert len(reduced.times.ready_s) == len(reduced.times.done_s) == 1


def test_parcels_of_two_types_are_sent_in_one_order_whatever_came_first() -> None:
    model = nn.ModuleList(
        [nn.Linear(4, 4, bias=False, dtype=d) for d in (torch.float32, torch.float64) * 2]
    )
    orders = []
    for visit in ((0, 1, 2, 3), (3, 1, 2, 0)):
        clock = Clock()
        wire = Wire(clock)
        reducer = reducer_for(model, clock, wire, parcel_bytes=1)
        reducer.before_backward(last=True)
        for place in visit:
            one = model[place]
            one(torch.ones(1, 4, dtype=one.weight.dtype)).sum().backward()
        reducer.buffer.flush(fill_unused=True)
        reducer.send(BALLOT)
        assert reducer.finish().ballots == [6.0, 2.0, 0.0]
        reducer.buffer.close()
        orders.append(wire.sizes)
    assert orders[0] == orders[1]
    assert len(orders[0]) == 4


def times_of(*, backward_s: float, link_s: float) -> BucketTimes:
    clock, model = Clock(), layers()
    reducer = reducer_for(model, clock, Wire(clock, link_s=link_s), parcel_bytes=1)

    def slow(gradient: torch.Tensor) -> torch.Tensor:
        clock.now_s += backward_s
        return gradient

    for parameter in model.parameters():
        parameter.register_hook(slow)
    times: BucketTimes = window(reducer, model).times
    return times


def test_the_times_tell_a_slow_rank_from_a_slow_link() -> None:
    slow_rank = times_of(backward_s=5.0, link_s=0.125)
    slow_link = times_of(backward_s=0.125, link_s=5.0)
    assert slow_rank.began_s == slow_link.began_s == 100.0
    assert slow_rank.ready_s == (105.0, 110.0, 115.0)
    assert slow_link.ready_s == (100.125, 100.25, 100.375)
    assert slow_rank.done_s[-1] - slow_rank.ready_s[-1] == 0.125
    assert slow_link.done_s[-1] - slow_link.ready_s[-1] == 5.0
