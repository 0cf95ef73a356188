"""The loss scale is among what is compared where workers have one in common."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import paceline
from paceline.server.witnesses import Witnesses
from paceline.strategies import parse_strategy
from paceline.worker.plane import Contribution
from paceline.worker.verifying import Verifier
from worker.fakes import ScriptedPlane, parts_around


class Line:
    """A session of ``rank``, straight to the server's witnesses."""

    def __init__(self, rank: int, witnesses: Witnesses) -> None:
        self._rank = rank
        self._witnesses = witnesses

    def request(self, witness: Any) -> Any:
        return self._witnesses.compare(self._rank, witness)

    def abort(self, text: str, kind: str) -> None:
        assert kind == "inconsistent"


def say(rank: int, witnesses: Witnesses, strategy: str, scale: float) -> None:
    """``rank`` comes to its first window with this scale."""
    torch.manual_seed(0)
    plane: Any = ScriptedPlane([])
    plane.loss_scale = lambda: scale
    parts = parts_around(plane)
    object.__setattr__(parts.options, "strategy", parse_strategy(strategy))
    line: Any = Line(rank, witnesses)
    Verifier(parts, line, 1)
    parts.moments.opened(0)
    parts.moments.computed(Contribution(weight=1.0, unit=1.0))


@pytest.mark.parametrize("strategy", ["sync", "ssp:0"])
def test_it_is_named_where_steps_are_joint(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedPlane, "name", "allreduce")
    witnesses = Witnesses(2)
    say(0, witnesses, strategy, 1024.0)
    with pytest.raises(
        paceline.ConsistencyError, match=r"the loss scale: 1024.0 on rank 0; 512.0 on rank 1"
    ):
        say(1, witnesses, strategy, 512.0)


def test_it_is_each_workers_own_where_pushes_are_judged_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ScriptedPlane, "name", "allreduce")
    witnesses = Witnesses(2)
    say(0, witnesses, "async", 1024.0)
    say(1, witnesses, "async", 512.0)
