"""A window that is skipped is an accident; ``max_skips`` of them in a row end the run, named."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import paceline
from paceline.worker.plane import Outcome
from paceline.worker.skips import SkipLimit


def outcome(reason: str, *, skipped: bool = True, applied: bool = False) -> Outcome:
    return Outcome(
        applied=applied,
        reason=reason,
        version=0,
        clock=0,
        norm=None,
        skipped=skipped and not applied,
    )


def test_the_row_is_counted_and_its_first_reason_named() -> None:
    limit = SkipLimit(3)
    limit.feed(outcome("a is not finite"))
    limit.feed(outcome("b is not finite"))
    limit.feed(outcome("fine", applied=True))
    limit.feed(outcome("c is not finite"))
    limit.feed(outcome("late", skipped=False))
    limit.feed(outcome("d is not finite"))
    with pytest.raises(
        paceline.NonFiniteError, match=r"3 windows in a row .* The first: c .* the last: e"
    ):
        limit.feed(outcome("e is not finite"))


@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_the_limit_is_a_whole_number(value: object) -> None:
    with pytest.raises(paceline.UsageError, match="max_skips"):
        paceline.Runtime(max_skips=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_alone_the_parameter_is_named_and_nothing_was_changed(accumulate: int, bad: float) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = [torch.randn(2, 3) for _ in range(40)]
    runtime = paceline.Runtime(max_skips=4)
    steps = 0

    def train() -> None:
        nonlocal steps
        with paceline.Worker(model, optimizer, accumulate=accumulate, runtime=runtime) as worker:
            for inputs in worker.batches(loader):
                steps += 1
                worker.step(worker(inputs).mean() * (bad if steps % accumulate == 0 else 1.0))

    with pytest.raises(paceline.NonFiniteError, match=r"4 windows .* 0\.weight is not finite"):
        train()
    assert steps == 4 * accumulate
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
