"""A worker looks at its own gradient, whole: before anything of it is sent, divided or unscaled."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.worker.health_watch import HealthWatch
from paceline.worker.loop import Loop
from paceline.worker.planning import Demand
from worker.fakes import ScriptedPlane, parts_around


def test_nothing_is_sent_ahead_of_a_look() -> None:
    plane = ScriptedPlane([(0, 1), (2, 3), (4, 5)], unit=2.0)
    parts = parts_around(plane, accumulate=2)
    HealthWatch(parts, 2)
    loop = Loop(parts)
    batches = [torch.ones(2, 3)] * 6
    for inputs in loop.run(Demand(loader=batches, steps=None, split=False)):
        loop.step(parts.model(inputs).mean(), None)
    backwards = [call for call in plane.calls if call in ("backward", "last")]
    assert backwards == ["backward", "backward", "backward", "last", "backward", "backward"]


def test_the_gradient_is_the_mean_of_the_window_whatever_it_still_carries() -> None:
    """On the collective plane a worker's gradient carries its share of the update, and a loss scale."""
    seen = []
    plane = ScriptedPlane([(0,)], unit=8.0 / 4.0)  # the scale is part of the unit
    parts = parts_around(plane, model=nn.Linear(3, 1))
    plane.loss_scale = lambda: 4.0  # type: ignore[method-assign]
    HealthWatch(parts, 1)
    journal = parts.journal
    object.__setattr__(
        journal, "health", lambda name, health, **_: seen.append((name, health.norm))
    )
    loop = Loop(parts)
    for inputs in loop.run(Demand(loader=[torch.ones(2, 3)], steps=None, split=False)):
        loop.step(parts.model(inputs).mean(), None)
    assert seen == [("weight", pytest.approx(3**0.5)), ("bias", pytest.approx(1.0))]
