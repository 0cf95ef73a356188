"""Saves that do not fit together: one that a short last round overtakes, one that a rank never made;
and a loss scale that was none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.worker.loop import Loop
from paceline.worker.plane import Cut, Position
from paceline.worker.saving import Saver


class Plane:
    """At version 6 as far as this worker knows."""

    def __init__(self, together: bool) -> None:
        self.together = together

    def position(self) -> Position:
        return Position(version=6)


class Parts:
    def __init__(self, together: bool) -> None:
        self.plane = Plane(together)


def went_on(version: int, *, together: bool) -> bool:
    saver = Saver(Parts(together), loaders=None)  # type: ignore[arg-type]
    return saver._went_on(Cut(version=version, progress=12, clocks={}, left=(), state=None))


def test_a_cut_beyond_the_version_that_was_handed_in_for_is_not_written() -> None:
    assert went_on(7, together=True)
    assert not went_on(6, together=True)


def test_where_nobody_waits_a_cut_may_be_of_any_version() -> None:
    assert not went_on(7, together=False)


class Journal:
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, _kind: str, text: str) -> None:
        self.said.append(text)


def said_at_the_end(*saves: int) -> list[str]:
    """What a loop says where rank r has called save ``saves[r]`` times, and nobody waits."""
    parts: Any = Parts(together=False)
    parts.journal = Journal()
    loop = Loop.__new__(Loop)
    loop._parts = parts
    facts = [{"rank": r, "saves": n, "missed": False, "directory": ""} for r, n in enumerate(saves)]
    loop._make_up(facts)
    said: list[str] = parts.journal.said
    return said


def test_a_rank_that_never_saves_is_named() -> None:
    (text,) = said_at_the_end(9, 0)
    assert "rank 0 called worker.save 9 times" in text
    assert "rank 1 never" in text


def test_ranks_that_all_save_are_not() -> None:
    assert said_at_the_end(9, 4) == said_at_the_end(1, 0) == said_at_the_end(0, 0) == []


@pytest.mark.parametrize(("before", "scale"), [("fp32", 65536.0), ("fp16", 32768.0)])
def test_only_a_dynamic_loss_scale_goes_on(tmp_path: Path, before: str, scale: float) -> None:
    def trained(precision: str, loss: float) -> Any:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        worker = paceline.Worker(model, optimizer, precision=precision)
        for batch in worker.batches([torch.ones(4, 2)] if loss else []):
            worker.step(worker(batch).mean() * loss)
        return worker

    with trained(before, float("inf")) as worker:
        worker.save(tmp_path)
    with trained("fp16", 0.0) as worker:
        worker.load(tmp_path)
        assert worker.loss_scale == scale
