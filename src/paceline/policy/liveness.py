"""When a worker has been silent for too long. Times are the driver's; nothing here reads a clock."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf


class Deadlines:
    """One deadline a worker, ``after_s`` after it was last heard.

    Hearing is O(1): the heap keeps the deadline it knew, which is corrected when it comes up.
    """

    __slots__ = ("_after_s", "_announced_s", "_heap", "_known_s", "_last_s")

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._last_s: dict[int, float] = {}
        self._known_s: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._announced_s = inf

    def heard(self, rank: int, time_s: float) -> None:
        """``rank`` gave a sign of life."""
        self._last_s[rank] = time_s

    def watch(self, rank: int, time_s: float) -> None:
        """``rank`` is to give signs of life from now on."""
        self._last_s[rank] = time_s
        if self._after_s < inf:
            self._expect(rank, time_s + self._after_s)

    def forget(self, rank: int) -> None:
        """``rank`` is nobody's concern any more."""
        del self._last_s[rank]
        self._known_s.pop(rank, None)

    def overdue(self, now_s: float) -> list[int]:
        """The ranks whose deadline is not after ``now_s``, each told once. Uses up the alarm."""
        self._announced_s = inf  # also if a rounding error too early: it is then set again
        late = []
        while self._earliest_s() <= now_s:
            rank = heappop(self._heap)[1]
            del self._known_s[rank]
            late.append(rank)
        return sorted(late)

    def wake_s(self) -> float | None:
        """When to ask for the overdue ranks, if no alarm is set for that."""
        if self._announced_s < inf:
            return None
        self._announced_s = self._earliest_s()
        return self._announced_s if self._announced_s < inf else None

    def _earliest_s(self) -> float:
        """The earliest deadline; corrects what comes up in the heap until that is true."""
        while self._heap:
            known_s, rank = self._heap[0]
            if self._known_s.get(rank) == known_s:
                deadline_s = self._last_s[rank] + self._after_s
                if deadline_s <= known_s:
                    return known_s
                self._expect(rank, deadline_s)
            heappop(self._heap)  # of an earlier life, or corrected
        return inf

    def _expect(self, rank: int, deadline_s: float) -> None:
        self._known_s[rank] = deadline_s
        heappush(self._heap, (deadline_s, rank))
