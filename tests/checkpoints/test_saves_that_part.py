"""A save just before a last round in which not every rank has a batch: the round may overtake it."""

from __future__ import annotations

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
