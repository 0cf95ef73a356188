"""How a worker's time divides: one phase at a time, summed per window. The clock is passed in.

The current phase also travels with the heartbeats, so that a silent worker's last words say what it
was doing. Knows no trace and no plane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from paceline.worker.processor import ProcessorQueue

Phase = Literal["user", "data", "forward", "backward", "exchange", "wait", "evaluate", "save"]


_NOTHING_S: dict[str, float] = dict.fromkeys(get_args(Phase), 0.0)


class Phases:
    """``enter`` ends the running phase and starts the next; ``take`` reads and clears the sums.

    ``now_s()``: the worker's clock, in seconds. ``queue``: hears of the ends of phases when it wants to.
    """

    def __init__(self, clock_s: Callable[[], float], queue: ProcessorQueue | None = None) -> None:
        self.now_s = clock_s
        self._queue = queue
        self.current: Phase = "user"
        self._sums_s = _NOTHING_S.copy()
        self._began_s = self._since_s = clock_s()

    def enter(self, phase: Phase) -> None:
        """The worker does ``phase`` from now on."""
        now_s = max(self.now_s(), self._since_s)  # an emulated clock may be set back a little
        self._sums_s[self.current] += now_s - self._since_s
        self._since_s = now_s
        if phase != self.current:
            if self._queue is not None and self._queue.attentive:
                self._queue.leave(self.current)
            self._began_s = now_s
            self.current = phase

    @contextmanager
    def within(self, phase: Phase) -> Iterator[None]:
        """``phase`` for a while, then again what was."""
        before = self.current
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def take(self) -> dict[str, float]:
        """Seconds spent in each phase since the last call."""
        self.enter(self.current)
        sums_s, self._sums_s = self._sums_s, _NOTHING_S.copy()
        return sums_s

    def report(self) -> tuple[str, float]:
        """The current phase and its age in seconds. Any thread may ask."""
        return self.current, self.now_s() - self._began_s
