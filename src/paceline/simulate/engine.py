"""A deterministic event loop: the earliest time first, and what was planned first among equals."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Engine:
    """``now_s`` moves only from one planned call to the next. ``at(time_s, act, rank)`` plans one."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._planned: list[tuple[float, int, Callable[[int], None], int]] = []
        self._serial = 0

    def at(self, time_s: float, act: Callable[[int], None], rank: int) -> None:
        """Call ``act(rank)`` at ``time_s``, which must not be in the past."""
        assert time_s >= self.now_s, (time_s, self.now_s)
        self._serial += 1
        heappush(self._planned, (time_s, self._serial, act, rank))

    def run(self) -> None:
        """Until nothing is planned."""
        planned = self._planned
        while planned:
            self.now_s, _, act, rank = heappop(planned)
            act(rank)
