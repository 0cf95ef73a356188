"""The ingredients one by one: words, warm-up, relative limit, momentum of one's own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.errors import UsageError
from paceline.gradients.norm_limit import MEMORY, NEW, RELATIVE, norm_limit
from paceline.recipes import Plain, Stable, parse_recipe
from paceline.strategies import parse_strategy
from paceline.transport.messages import Decided, Push
from paceline.worker import recipe_parts
from paceline.worker.manifest import trainable
from paceline.worker.own_gradient import OVERFLOWED, OwnGradient, Unrefined
from paceline.worker.training import Training
from paceline.worker.warm_up import WarmUp


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", Plain()), ("stable", Stable()), ("stable:300", Stable(warmup=300)),
        ("Stable:0", Stable(warmup=0)), ("stable:5%of2000", Stable(warmup=100)),
        ("stable: 10 % of 390", Stable(warmup=39)),
    ],
)  # fmt: skip
def test_words_name_recipes_and_recipes_print_as_words(text: str, value: Any) -> None:
    assert parse_recipe(text) == value
    assert parse_recipe(str(value)) == value


@pytest.mark.parametrize(
    "text", ["adam", "plain:3", "stable:-1", "stable:x", "stable:200%of9", "stable:1:2"]
)
def test_other_words_are_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(UsageError, match=r"recipe=.*'stable'"):
        parse_recipe(text)


def test_rates_rise_by_whole_updates_whoever_makes_them() -> None:
    rising = WarmUp(updates=4, workers=3)
    joint = [rising.factor(progress, window=2) for progress in (0, 6, 12, 18, 24, 600)]
    assert joint == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert rising.factor(3, window=2) == 0.375, "half an update later"
    assert WarmUp(updates=0, workers=3).factor(0, window=2) == 1


def test_a_fixed_limit_stays() -> None:
    for fixed in (None, 0.5):
        limit = norm_limit(fixed, None)
        limit.feed(100.0)
        assert (limit.now, limit.state) == (fixed, None)


def test_a_relative_limit_is_twice_the_mean_of_clipped_norms() -> None:
    limit = norm_limit(None, NEW)
    norms = [3.0, 1.0, 2.0, 2.5, 1.5, 50.0, 2.0, 2.0]
    clipped: list[float] = []
    for norm in norms:
        now = limit.now
        assert (now is None) == (len(clipped) < 5)
        if now is not None:
            weights = [MEMORY**age for age in range(len(clipped))][::-1]
            mean = sum(w * n for w, n in zip(weights, clipped, strict=True)) / sum(weights)
            assert now == pytest.approx(RELATIVE * mean)
        clipped.append(min(norm, now or math.inf))
        limit.feed(norm)
    assert norm_limit(None, limit.state).now == limit.now
    assert norm_limit(1.0, limit.state).now == 1.0, "the user's own limit holds as well"


def test_what_is_not_finite_or_nothing_does_not_spoil_a_relative_limit() -> None:
    limit = norm_limit(None, NEW)
    for norm in [0.0] * 9:
        limit.feed(norm)
    assert limit.now is None
    limit.feed(1.0)
    before = limit.now
    limit.feed(math.inf)
    assert limit.now == before


class Pushing:
    """A worker of two that pushes gradients of a small model, without a server."""

    def __init__(self, name: str = "SGD", strategy: str = "async", **hyper: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 2).double()
        self.optimizer = getattr(torch.optim, name)(self.model.parameters(), **{"lr": 0.1, **hyper})
        self.views = [torch.zeros_like(p) for p in self.model.parameters()]
        training = Training(
            model=self.model, optimizer=self.optimizer, strategy=parse_strategy(strategy),
            trainables=trainable(self.model, self.optimizer), recipe=Stable(), limit=list(NEW),
        )  # fmt: skip
        self.own = recipe_parts.own_gradient(training, self.views, 2)

    def push(self, value: float, *, weight: float = 4.0, unit: float = 4.0, bad: str = "") -> Push:
        for view in self.views:
            view.fill_(value)
        norm = math.sqrt(sum(float((view**2).sum()) for view in self.views))
        return self.own.refined(
            Push(weight=weight, unit=unit, used=b"\1\1", bad=bad, norm=norm, stop=False, total=None,
                 groups=None)
        )  # fmt: skip

    def decide(self, *, applied: bool) -> float | None:
        return self.own.decided(
            Decided(applied=applied, kind="", reason="", version=1, clock=1, lag=0, norm=7.0, leases=[],
                    progress=1, waited_s=0.0, applied_s=0.0, parameters_fd=0, next=None)
        )  # fmt: skip

    @property
    def pushed(self) -> float:
        return float(self.views[0][0, 0])


def test_momentum_is_of_unscaled_means_so_that_a_loss_scale_may_change() -> None:
    worker = Pushing(momentum=0.5)
    first = worker.push(2.0 * 1024, unit=4.0 / 1024)
    assert (worker.pushed, first.unit) == (3.0, 4.0), "g + m g, as a mean"
    assert first.norm == pytest.approx(3.0 * math.sqrt(8))
    assert worker.decide(applied=True) == pytest.approx(2.0 * math.sqrt(8)), (
        "the gradient's own norm"
    )
    worker.push(2.0 * 8, unit=4.0 / 8)
    assert worker.pushed == 2.0 + 0.5 * (0.5 * 2.0 + 2.0)


def test_a_window_that_is_not_finite_reaches_neither_momentum_nor_limit() -> None:
    worker = Pushing(momentum=0.5)
    worker.push(2.0)
    worker.decide(applied=True)
    state = worker.own.state()["limit"]
    assert worker.push(math.nan, bad="weight").bad == "weight"
    assert worker.decide(applied=False) is None
    worker.push(5.0, weight=0.0)
    assert worker.decide(applied=False) is None
    assert worker.own.state()["limit"] == state
    worker.push(2.0)
    assert worker.pushed == 2.0 + 0.5 * (0.5 * 2.0 + 2.0)


def test_a_window_that_used_no_parameter_is_pushed_as_it_is() -> None:
    worker = Pushing(momentum=0.5)
    push = Push(
        weight=3.0, unit=4.0, used=b"\0\0", bad="", norm=0.0, stop=False, total=None, groups=None
    )
    assert worker.own.refined(push).norm == 0
    assert worker.decide(applied=True) == 0


def test_what_the_server_could_not_apply_is_forgotten() -> None:
    worker = Pushing(momentum=0.5)
    worker.push(2.0)
    assert worker.decide(applied=False) is None
    worker.push(2.0)
    assert worker.pushed == 3.0


def test_a_norm_that_overflowed_is_no_gradient_once_there_is_a_limit() -> None:
    worker = Pushing(momentum=0.5)
    for _ in range(6):
        worker.push(1.0)
        worker.decide(applied=True)
    assert worker.push(1e200).bad == OVERFLOWED


def test_a_gradient_far_out_is_clipped_before_it_reaches_the_momentum() -> None:
    worker = Pushing(momentum=0.0)
    for _ in range(10):
        worker.push(1.0)
        worker.decide(applied=True)
    worker.push(100.0)
    assert worker.pushed == pytest.approx(RELATIVE, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "hyper"),
    [("SGD", {"momentum": 0.9}), ("Adam", {"weight_decay": 0.1}), ("AdamW", {}), ("RMSprop", {})],
)
def test_the_servers_part_is_what_workers_leave(name: str, hyper: dict[str, Any]) -> None:
    worker = Pushing(name, **hyper)
    group = worker.own.servers([dict(worker.optimizer.param_groups[0])])[0]
    assert worker.own.keeps_state == (name == "SGD")
    assert group.get("momentum", 0) == 0
    if name.startswith("Adam"):
        assert group["betas"] == [0.0, 0.999**0.5]
        assert group["weight_decay"] == (0.01 if name == "AdamW" else 0)


def test_joint_updates_leave_the_pushes_alone() -> None:
    for strategy in ("sync:server", "ssp:0", "backup:1"):
        assert isinstance(Pushing(strategy=strategy, momentum=0.9).own, Unrefined)
    assert isinstance(Pushing(strategy="ssp:1", momentum=0.9).own, OwnGradient)


def test_momentum_goes_on_from_what_the_optimizer_holds_and_is_shown_there() -> None:
    one = Pushing(momentum=0.5)
    one.push(2.0)
    one.own.show()
    held = one.optimizer.state[one.model.weight]["momentum_buffer"]
    assert float(held[0, 0]) == 2.0
    training = Training(
        model=one.model, optimizer=one.optimizer, strategy=parse_strategy("async"),
        trainables=trainable(one.model, one.optimizer), recipe=Stable(), limit=list(NEW),
    )  # fmt: skip
    one.own = recipe_parts.own_gradient(training, one.views, 2)
    one.push(2.0)
    assert one.pushed == 2.0 + 0.5 * (0.5 * 2.0 + 2.0)
    assert float(held[0, 0]) == 2.0, "a copy"


def test_sixteen_bit_parameters_have_wide_momentum() -> None:
    model = nn.Linear(3, 2).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, weight_decay=0.5)
    views = [torch.ones(p.shape) for p in model.parameters()]
    training = Training(
        model=model, optimizer=optimizer, strategy=parse_strategy("async"),
        trainables=trainable(model, optimizer), recipe=Stable(), limit=list(NEW),
    )  # fmt: skip
    own = recipe_parts.own_gradient(training, views, 2)
    own.refined(
        Push(
            weight=1.0,
            unit=1.0,
            used=b"\1\1",
            bad="",
            norm=3.0,
            stop=False,
            total=None,
            groups=None,
        )
    )
    expected = 1.5 * (1 + 0.5 * model.weight.detach().float())
    assert torch.allclose(views[0], expected)
    assert own.state()["optimizer"]["weight"]["momentum_buffer"].dtype == torch.float32


def test_nesterov_and_dampening_contradict() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    with pytest.raises(UsageError, match=r"recipe='stable' and dampening=0\.5"):
        paceline.Worker(model, optimizer, recipe="stable")
    assert not optimizer.param_groups[0]["nesterov"]


def test_a_run_may_be_resumed_under_the_other_recipe(tmp_path: Path) -> None:
    for first, second in (("plain", "stable"), ("stable", "plain")):
        for recipe in (first, second):
            model = nn.Linear(3, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            with paceline.Worker(model, optimizer, recipe=recipe) as worker:
                if recipe == second:
                    worker.load(tmp_path / first)
                worker.scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
                assert optimizer.param_groups[0]["nesterov"] is (recipe == "stable")
                if recipe == first:
                    worker.save(tmp_path / first)


def test_plain_alters_nothing_and_stable_says_nesterov_in_the_optimizer() -> None:
    for recipe, nesterov in (("plain", False), ("stable", True)):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with paceline.Worker(model, optimizer, recipe=recipe):
            assert optimizer.param_groups[0]["nesterov"] is nesterov


def test_a_warm_up_longer_than_the_pass_is_said_with_the_remedy() -> None:
    warm_up_notice = recipe_parts.warm_up_notice
    said = warm_up_notice(Stable(), workers=32, window=1, total=200)
    assert "100 updates of 32 x 1 batches = 3,200" in said
    assert "this pass has 200" in said
    assert "recipe='stable:1'" in said
    assert not warm_up_notice(Stable(), workers=8, window=1, total=1875)
    assert not warm_up_notice(Stable(warmup=0), workers=8, window=1, total=10)
    assert not warm_up_notice(Stable(), workers=8, window=1, total=None)
    assert not warm_up_notice(Plain(), workers=8, window=1, total=10)
