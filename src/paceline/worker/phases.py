"""How a worker's time divides: one phase at a time, summed per window. The clock is passed in.

The name of the current phase also travels with the heartbeats, so that a silent worker's last
words say what it was doing. Knows no trace and no plane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Phase = Literal["user", "data", "forward", "backward", "exchange", "wait", "evaluate"]


class Phases:
    """``enter`` ends the running phase and starts the next; ``take`` reads and clears the sums."""

    def __init__(self, clock_s: Callable[[], float], on_phase: Callable[[str], None]) -> None:
        self._clock_s = clock_s
        self._on_phase = on_phase
        self._sums_s: dict[str, float] = {}
        self._since_s = clock_s()
        self.current: Phase = "user"

    def now_s(self) -> float:
        """The worker's clock, in seconds."""
        return self._clock_s()

    def enter(self, phase: Phase) -> None:
        """The worker does ``phase`` from now on."""
        now = self._clock_s()
        self._sums_s[self.current] = self._sums_s.get(self.current, 0.0) + now - self._since_s
        self._since_s = now
        if phase != self.current:
            self.current = phase
            self._on_phase(phase)

    def take(self) -> dict[str, float]:
        """Seconds spent in each phase since the last call."""
        self.enter(self.current)
        sums, self._sums_s = self._sums_s, {}
        return sums
