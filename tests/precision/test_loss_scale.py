"""The loss scale as a value, and whose it is on the server."""

from __future__ import annotations

import math

from paceline.gradients.precision.loss_scale import (
    INITIAL,
    LARGEST,
    PATIENCE,
    SMALLEST,
    UNSCALED,
    LossScale,
    dynamic_scale,
)
from paceline.server.scales import Scales
from paceline.worker.scale_watch import ScaleWatch


def test_it_backs_off_at_once_and_grows_after_a_long_time() -> None:
    scale = dynamic_scale().after(finite=False)
    assert scale.value == INITIAL / 2
    for _ in range(PATIENCE - 1):
        scale = scale.after(finite=True)
    assert scale.value == INITIAL / 2
    assert scale.after(finite=True).value == INITIAL
    assert scale.after(finite=False).good == 0, "patience begins anew"


def test_it_stays_a_power_of_two_within_its_limits() -> None:
    low = high = LossScale(value=INITIAL, patience=2)
    for _ in range(100):
        low = low.after(finite=False)
        high = high.after(finite=True).after(finite=True)
        assert math.frexp(low.value)[0] == math.frexp(high.value)[0] == 0.5
    assert low.value == SMALLEST
    assert high.value == LARGEST


def test_a_constant_stays() -> None:
    for scale in (UNSCALED, LossScale(value=1000.0)):
        assert scale.after(finite=False) == scale.after(finite=True) == scale


def test_it_follows_torchs_grad_scaler() -> None:
    import torch

    ours = LossScale(value=8.0, patience=3)
    theirs = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for number in range(40):
        finite = number % 7 != 0
        theirs.scale(weight.sum()).backward()
        weight.grad.mul_(1.0 if finite else math.inf)  # type: ignore[union-attr]
        theirs.step(optimizer)
        theirs.update()
        optimizer.zero_grad()
        ours = ours.after(finite)
        assert ours.value == theirs.get_scale()


def test_a_round_counts_once_for_all_and_what_came_late_not_at_all() -> None:
    scales = Scales(dynamic_scale(), joint=True)
    scales.decided((0,), 0, finite=False)
    scales.decided((1,), 0, finite=False)
    assert scales.of(0) == scales.of(1) == scales.of(2) == INITIAL / 2
    scales.decided((0, 1), 1, finite=True)
    scales.decided((2,), 0, finite=False)
    assert scales.of(2) == INITIAL / 2


def test_a_push_that_stands_alone_moves_its_own_scale_only() -> None:
    scales = Scales(dynamic_scale(), joint=False)
    scales.decided((1,), 0, finite=False)
    scales.decided((1,), 1, finite=False)
    scales.decided((0,), 0, finite=True)
    assert (scales.of(0), scales.of(1)) == (INITIAL, INITIAL / 4)
    assert scales.dynamic
    assert not Scales(UNSCALED, joint=False).dynamic


def test_one_back_off_is_said_and_every_change_is_recorded() -> None:
    watch = ScaleWatch()
    changes = [watch.feed(scale) for scale in (8.0, 8.0, 4.0, 2.0, 4.0)]
    assert [recorded for recorded, _ in changes] == [
        "", "", "loss scale 8 -> 4", "loss scale 4 -> 2", "loss scale 2 -> 4",
    ]  # fmt: skip
    assert [bool(said) for _, said in changes] == [False, False, True, False, False]
    assert "8 -> 4" in changes[2][1]
