"""One worker is the plain loop, bit for bit, under every option that a plain loop has too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.errors import UsageError
from paceline.strategies import parse_strategy
from paceline.worker.local_plane import LocalPlane
from paceline.worker.manifest import trainable
from paceline.worker.plane import Contribution, PassPlan
from paceline.worker.planes import open_plane
from paceline.worker.training import Training
from planes.toy import UNIT, build, gradient_step, hexed, in_order, parameters_of

OPTIMIZERS = [
    ["SGD", {"lr": 0.1}],
    ["SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}],
    ["Adam", {"lr": 0.01}],
    ["AdamW", {"lr": 0.01, "amsgrad": True}],
    ["RMSprop", {"lr": 0.01, "momentum": 0.5}],
]


pytestmark = pytest.mark.usefixtures("one_thread")


def opened(model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> LocalPlane:
    training = Training(
        model=model,
        optimizer=optimizer,
        trainables=trainable(model, optimizer),
        strategy=parse_strategy("ssp:3"),
        **options,
    )
    plane = open_plane("local", training, None)
    assert isinstance(plane, LocalPlane)
    return plane


def plan(*, total: int | None, window: int) -> PassPlan:
    return PassPlan(
        pass_id=0, total=total, window=window, depth=2 * window, weight=UNIT * window, unit=UNIT
    )


def train(
    plane: LocalPlane, model: Any, *, total: int, window: int, spoiled: int = -1
) -> list[bool]:
    plane.open_pass(plan(total=total, window=window))
    applied = []
    while (granted := plane.next_window()) is not None:
        weight = 0.0
        for batch in granted.batches:
            plane.before_backward(last=batch == granted.batches[-1])
            weight, _ = gradient_step(model, batch, weight, UNIT, spoiled=batch == spoiled)
        applied.append(plane.exchange(Contribution(weight=weight, unit=UNIT)).applied)
    return applied


def plain_loop(
    model: Any,
    optimizer: torch.optim.Optimizer,
    *,
    total: int,
    window: int,
    clip_norm: float | None,
) -> None:
    for first in range(0, total, window):
        weight = 0.0
        for batch in range(first, min(first + window, total)):
            weight, _ = gradient_step(model, batch, weight, UNIT)
        if weight != UNIT:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(weight / UNIT)
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(in_order(optimizer), clip_norm)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda value: value[0])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_it_is_the_plain_loop_bit_for_bit(
    optimizer: list[Any], window: int, clip_norm: float | None
) -> None:
    ours, our_optimizer = build(optimizer, seed=0)
    plane = opened(ours, our_optimizer, clip_norm=clip_norm)
    assert all(train(plane, ours, total=10, window=window))
    theirs, their_optimizer = build(optimizer, seed=0)
    plain_loop(theirs, their_optimizer, total=10, window=window, clip_norm=clip_norm)
    expected = {name: hexed(value) for name, value in parameters_of(theirs).items()}
    assert {name: hexed(value) for name, value in parameters_of(ours).items()} == expected
    assert plane.position().version == -(-10 // window)
    assert plane.position().progress == 10


def test_a_window_with_a_nan_is_skipped_and_names_the_parameter() -> None:
    model, optimizer = build(OPTIMIZERS[0], seed=0)
    plane = opened(model, optimizer)
    assert train(plane, model, total=4, window=1, spoiled=2) == [True, True, False, True]
    assert all(bool(torch.isfinite(value).all()) for value in parameters_of(model).values())
    assert (plane.position().version, plane.position().clock) == (3, 4)


def test_the_reason_of_a_skip_names_the_first_bad_parameter_in_the_optimizers_order() -> None:
    model, optimizer = build(OPTIMIZERS[0], seed=0)
    plane = opened(model, optimizer)
    plane.open_pass(plan(total=1, window=1))
    plane.next_window()
    plane.before_backward(last=True)
    gradient_step(model, 0, 0.0, UNIT, spoiled=True)
    outcome = plane.exchange(Contribution(weight=3.0, unit=UNIT))
    assert "second.weight" in outcome.reason


def test_an_empty_window_changes_nothing_and_ticks_the_clock() -> None:
    model, optimizer = build(OPTIMIZERS[1], seed=0)
    before = {name: hexed(value) for name, value in parameters_of(model).items()}
    plane = opened(model, optimizer)
    plane.open_pass(plan(total=1, window=1))
    plane.next_window()
    outcome = plane.exchange(Contribution(weight=0.0, unit=UNIT))
    assert (outcome.applied, outcome.version, outcome.clock) == (False, 0, 1)
    assert {name: hexed(value) for name, value in parameters_of(model).items()} == before


def test_a_stream_ends_where_the_worker_says() -> None:
    model, optimizer = build(OPTIMIZERS[0], seed=0)
    plane = opened(model, optimizer)
    plane.open_pass(plan(total=None, window=2))
    assert plane.leases() == [0, 1, 2, 3]
    plane.next_window()
    plane.exchange(Contribution(weight=0.0, unit=UNIT))
    window = plane.next_window()
    assert window is not None
    assert window.batches == (2, 3)
    assert plane.leases() == [4, 5]
    plane.exchange(Contribution(weight=0.0, unit=UNIT, total=3))
    assert plane.next_window() is None


def test_a_stop_flag_ends_the_pass() -> None:
    model, optimizer = build(OPTIMIZERS[0], seed=0)
    plane = opened(model, optimizer)
    plane.open_pass(plan(total=9, window=1))
    plane.next_window()
    plane.exchange(Contribution(weight=0.0, unit=UNIT, stop=True))
    assert plane.next_window() is None


def test_a_backward_outside_step_is_an_error_that_names_the_line() -> None:
    model, optimizer = build(OPTIMIZERS[0], seed=0)
    plane = opened(model, optimizer)
    with pytest.raises(UsageError, match=r"Delete the line `loss.backward\(\)`"):
        gradient_step(model, 0, 0.0, UNIT)
    plane.close("finished")
    gradient_step(model, 0, 0.0, UNIT)


def test_the_launchers_factor_scales_each_update_and_leaves_the_rate_alone() -> None:
    ours, our_optimizer = build(["SGD", {"lr": 0.1}], seed=0)
    train(opened(ours, our_optimizer, lr_factor=0.5), ours, total=4, window=1)
    theirs, their_optimizer = build(["SGD", {"lr": 0.05}], seed=0)
    plain_loop(theirs, their_optimizer, total=4, window=1, clip_norm=None)
    for name, value in parameters_of(theirs).items():
        assert torch.equal(parameters_of(ours)[name], value)
    assert [group["lr"] for group in our_optimizer.param_groups] == [0.1, 0.1]
