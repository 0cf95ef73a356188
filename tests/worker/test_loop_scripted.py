"""The loop's promises against a scripted plane: what is asked of the group, in which order."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from fakes import RecordedPace, ScriptedPlane, parts_around
from torch import nn

from paceline.errors import MismatchError, PeerLostError, UsageError
from paceline.worker.batches import Batches
from paceline.worker.loop import Loop
from paceline.worker.planning import Demand

BATCHES = [torch.full((2, 3), float(n)) for n in range(6)]


def looped(plane: ScriptedPlane, **options: Any) -> tuple[Loop, Batches]:
    parts = parts_around(plane, **options)
    loop = Loop(parts)
    return loop, Batches(loop, Demand(loader=BATCHES, steps=None, split=True), parts)


def loss_of(loop: Loop, batch: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = loop._parts.model(batch).mean()
    return loss


def train(loop: Loop, batches: Batches) -> None:
    for batch in batches:
        loop.step(loss_of(loop, batch), None)


def test_the_window_decides_when_gradients_are_exchanged() -> None:
    plane = ScriptedPlane([(0, 2), (4,)], world_size=2, unit=2.0)
    loop, batches = looped(plane, accumulate=2)
    seen, ended = [], []
    for batch in batches:
        seen.append(int(batch[0, 0]))
        ended.append(loop.step(loss_of(loop, batch), None).window_ended)
    assert seen == [0, 2, 4]
    assert ended == [False, True, True]
    steps = [call for call in plane.calls if call in ("backward", "last", "exchange", "next")]
    assert steps == ["next", "backward", "last", "exchange", "next", "last", "exchange", "next"]
    assert [c.weight for c in plane.contributions] == [4.0, 2.0]


def test_whoever_holds_a_worker_back_hears_of_each_thing_when_it_happens() -> None:
    plane = ScriptedPlane([(0, 2), (4,)], world_size=2, unit=2.0)
    parts = replace(parts_around(plane, accumulate=2), pace=RecordedPace(plane.calls))
    loop = Loop(parts)
    demand = Demand(loader=BATCHES, steps=None, split=True)
    for batch in Batches(loop, demand, parts):
        plane.calls.append("user")
        loop.step(loss_of(loop, batch), None)
    told = plane.calls[plane.calls.index("begin") : plane.calls.index("the end of batches")]
    window_end = "user last hold push exchange decided leave enter next"
    expected = f"next started user backward hold leave enter {window_end} started {window_end}"
    assert [call for call in told if call in {*expected.split()}] == expected.split()


def test_an_iteration_without_step_weighs_nothing() -> None:
    plane = ScriptedPlane([(0, 1), (2,), (3,)])
    loop, batches = looped(plane)
    for number, batch in enumerate(batches):
        if number not in (1, 2):
            loop.step(loss_of(loop, batch), None)
    assert [c.weight for c in plane.contributions] == [2.0, 0.0, 2.0]
    assert loop._pass is not None
    assert loop._pass.skipped == 2


def test_a_break_waits_for_nobody_until_the_next_call() -> None:
    plane = ScriptedPlane([(0,), (1,), (2,)])
    loop, batches = looped(plane)
    for batch in batches:
        loop.step(loss_of(loop, batch), None)
        break
    assert plane.calls[-1] == "exchange"
    assert not loop.inside
    loop.settle()
    tail = plane.calls[plane.calls.index("exchange") + 1 :]
    assert tail == ["end early", "next", "the end of batches"]
    loop.settle()
    assert plane.calls[-1] == "the end of batches", "settled once"


def test_a_window_broken_off_is_handed_in_with_its_true_weight() -> None:
    plane = ScriptedPlane([(0, 1, 2)])
    loop, batches = looped(plane, accumulate=3)
    for batch in batches:
        loop.step(loss_of(loop, batch), None)
        break
    loop.settle()
    assert [c.weight for c in plane.contributions] == [2.0]


def test_an_exception_in_the_loop_is_not_delayed() -> None:
    plane = ScriptedPlane([(0, 1)])
    _, batches = looped(plane)

    def body() -> None:
        for _ in batches:
            raise KeyError("mine")

    with pytest.raises(KeyError):
        body()
    gc.collect()
    assert "exchange" not in plane.calls
    assert "end early" not in plane.calls


def test_a_backward_that_broke_off_spoils_its_window() -> None:
    class Explodes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            raise RuntimeError("boom")

    plane = ScriptedPlane([(0, 1), (2,)])
    loop, batches = looped(plane, accumulate=2)
    for number, batch in enumerate(batches):
        loss = loss_of(loop, batch)
        if number == 0:
            loss = Explodes.apply(loss)  # type: ignore[no-untyped-call]
        try:
            loop.step(loss, None)
        except RuntimeError:
            continue
    assert [c.weight for c in plane.contributions] == [0.0, 2.0]


def test_after_the_group_stopped_nothing_more_is_waited_for() -> None:
    plane = ScriptedPlane([(0,), (1,)])
    loop, batches = looped(plane)
    plane.failure = PeerLostError("rank 1 died")
    with pytest.raises(PeerLostError):
        train(loop, batches)
    plane.failure = None
    loop.settle()
    assert "end early" not in plane.calls


def test_step_outside_or_twice_is_refused() -> None:
    loop, batches = looped(ScriptedPlane([(0,)]))
    loss = nn.Linear(1, 1)(torch.ones(1)).sum()
    with pytest.raises(UsageError, match="outside"):
        loop.step(loss, None)
    for batch in batches:
        loop.step(loss_of(loop, batch), None)
        with pytest.raises(UsageError, match="twice"):
            loop.step(loss_of(loop, batch), None)
    with pytest.raises(UsageError, match="outside"):
        loop.step(loss, None)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (torch.ones(2, requires_grad=True), "mean"),
        (torch.ones(()), "no_grad"),
        (3.0, "tensor"),
        (lambda: None, "closure"),
    ],
)
def test_losses_that_cannot_be_trained_are_refused(loss: Any, words: str) -> None:
    loop, batches = looped(ScriptedPlane([(0,)]))
    for _ in batches:
        with pytest.raises(UsageError, match=words):
            loop.step(loss, None)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_weights_must_be_finite_and_not_negative(weight: float) -> None:
    loop, batches = looped(ScriptedPlane([(0,)]))
    for batch in batches:
        with pytest.raises(UsageError, match="weight"):
            loop.step(loss_of(loop, batch), weight)


def test_a_loss_over_nothing_weighs_nothing_even_if_it_is_nan() -> None:
    plane = ScriptedPlane([(0, 1)])
    loop, batches = looped(plane)
    for number, batch in enumerate(batches):
        loss = loss_of(loop, batch)
        loop.step(loss * float("nan") if number == 0 else loss, 0.0 if number == 0 else 5.0)
    assert [c.weight for c in plane.contributions] == [5.0]
    assert all(p.grad.isfinite().all() for p in loop._parts.trained if p.grad is not None)


def test_the_loss_is_scaled_by_its_share_of_the_unit() -> None:
    plane = ScriptedPlane([(0, 1)], unit=2.0)
    loop, batches = looped(plane)
    for number, batch in enumerate(batches):
        loop.step(loss_of(loop, batch), 6.0 if number else 2.0)
    bias = loop._parts.trained[1].grad
    assert bias is not None
    assert float(bias) == 1.0 + 3.0
    assert plane.contributions[0].unit == 2.0


def test_a_stop_flag_travels_with_the_push() -> None:
    plane = ScriptedPlane([(0,), (1,)])
    loop, batches = looped(plane)
    for number, batch in enumerate(batches):
        assert loop.stop(number == 1) is (number == 1)
        loop.step(loss_of(loop, batch), None)
    assert [c.stop for c in plane.contributions] == [False, True]
    assert loop.stop(False) is False
    assert loop.stop(True) is True


def test_a_streams_end_is_told_with_the_push() -> None:
    plane = ScriptedPlane([(4, 5, 6), (7,)], world_size=2)
    loop, batches = looped(plane)
    for batch in batches:
        loop.step(loss_of(loop, batch), None)
    assert [(c.weight, c.total) for c in plane.contributions] == [(4.0, 6), (0.0, 6)]


def test_len_is_this_ranks_share() -> None:
    _, batches = looped(ScriptedPlane([], world_size=4))
    assert len(batches) == 2
    loop, _ = looped(ScriptedPlane([]))
    with pytest.raises(TypeError, match="steps="):
        len(Batches(loop, Demand(loader=iter([]), steps=None, split=True), loop._parts))
    assert len(Batches(loop, Demand(loader=iter([]), steps=3, split=True), loop._parts)) == 3


def test_scripts_that_go_different_ways_are_told_which() -> None:
    plane = ScriptedPlane([], world_size=2, answer=lambda rank, facts: {**facts, "call": "close"})
    _, batches = looped(plane)
    with pytest.raises(MismatchError, match=r"rank 0 is in worker.batches, rank 1 in close"):
        list(batches)


def test_streams_in_different_orders_are_told_at_the_start() -> None:
    def other(rank: int, facts: dict[str, Any]) -> dict[str, Any]:
        return {**facts, "first": "0123"} if "first" in facts else facts

    _, batches = looped(ScriptedPlane([], world_size=2, answer=other))
    with pytest.raises(MismatchError, match="split=False"):
        list(batches)


def test_streams_in_different_orders_are_told_at_the_end() -> None:
    def other(rank: int, facts: dict[str, Any]) -> dict[str, Any]:
        return {**facts, "order": "0123"} if "order" in facts else facts

    loop, batches = looped(ScriptedPlane([(0,), (2,)], world_size=2, answer=other))
    with pytest.raises(MismatchError, match="split=False"):
        train(loop, batches)


def test_an_iterator_left_behind_yields_nothing_more() -> None:
    plane = ScriptedPlane([(0, 1), (2,)])
    loop, batches = looped(plane)
    first = iter(batches)
    next(first)
    plane.windows = [(3,)]
    loop.settle()
    assert list(first) == []
