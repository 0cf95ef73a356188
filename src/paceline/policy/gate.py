"""Who may start: a worker whose lead over the floor is within the bound (SSP's condition).

The floor is the smallest clock of all active members (:class:`Slowest`) or the clock of the open
round (:class:`RoundClock`); it never falls. All of this is incremental, O(1) amortised per clock
tick whatever the number of workers. It knows clocks and who is held back, not why a clock moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.policy.members import Member


class Floor(Protocol):
    """``active``: how many members count. ``clock``: the floor."""

    active: int
    clock: int

    @property
    def expected(self) -> int:
        """How many active members the round that is open may have a push of."""

    def enter(self, clocks: Sequence[int]) -> None:
        """Members at these clocks (none below the floor) count from now on, all at once."""

    def leave(self, clocks: Sequence[int]) -> None:
        """Members at these clocks count no longer, all at once."""

    def tick(self, old: int, new: int) -> None:
        """A member that counts goes from ``old`` to ``new``."""

    def end_round(self) -> None:
        """A round was decided."""


class Slowest:
    """The floor is where the slowest active member stands; it stays when the last one leaves."""

    def __init__(self) -> None:
        self.active = 0
        self.clock = 0
        self._standing: dict[int, int] = {}

    @property
    def expected(self) -> int:
        return self.active

    def enter(self, clocks: Sequence[int]) -> None:
        self.active += len(clocks)
        for clock in clocks:
            assert clock >= self.clock, (clock, self.clock)
            self._standing[clock] = self._standing.get(clock, 0) + 1
        self._climb()

    def leave(self, clocks: Sequence[int]) -> None:
        self.active -= len(clocks)
        for clock in clocks:
            self._take(clock)
        self._climb()

    def tick(self, old: int, new: int) -> None:
        self._standing[new] = self._standing.get(new, 0) + 1
        self._take(old)
        if old == self.clock:
            self._climb()

    def end_round(self) -> None:
        pass

    def _take(self, clock: int) -> None:
        standing = self._standing
        if standing[clock] == 1:
            del standing[clock]
        else:
            standing[clock] -= 1

    def _climb(self) -> None:
        standing = self._standing
        while standing and self.clock not in standing:
            self.clock += 1


class RoundClock:
    """The floor is the number of rounds decided: a late member does not hold the others."""

    def __init__(self) -> None:
        self.active = 0
        self.clock = 0
        self._ahead = 0

    @property
    def expected(self) -> int:
        return self.active - self._ahead

    def enter(self, clocks: Sequence[int]) -> None:
        self.active += len(clocks)
        self._ahead += self._count_ahead(clocks)

    def leave(self, clocks: Sequence[int]) -> None:
        self.active -= len(clocks)
        self._ahead -= self._count_ahead(clocks)

    def tick(self, old: int, new: int) -> None:
        pass

    def end_round(self) -> None:
        self.clock += 1
        self._ahead = 0

    def _count_ahead(self, clocks: Sequence[int]) -> int:
        return sum(clock > self.clock for clock in clocks)


class Gate:
    """Lets a clock through iff ``clock - floor <= bound``; remembers whom it held back."""

    __slots__ = ("_bound", "_checked", "_floor", "_held")

    def __init__(self, floor: Floor, bound: float) -> None:
        self._floor = floor
        self._bound = bound
        self._checked = floor.clock
        self._held: dict[int, dict[Member, None]] = {}

    def admits(self, clock: int) -> bool:
        """Whether a worker at ``clock`` may start now."""
        return clock - self._floor.clock <= self._bound

    def hold(self, member: Member) -> None:
        """Remember that ``member`` waits for the floor."""
        self._held.setdefault(member.clock, {})[member] = None

    def forget(self, member: Member) -> None:
        """``member`` waits for the floor no longer (it may never have)."""
        held = self._held.get(member.clock, {})
        held.pop(member, None)
        if not held:
            self._held.pop(member.clock, None)

    def released(self) -> list[Member]:
        """Whom the floor now lets through, each told once: by clock, then by who waited first."""
        if not self._held:
            return []
        top = self._floor.clock + int(self._bound)
        if min(self._held) > top:
            return []
        clocks = [clock for clock in sorted(self._held) if clock <= top]
        return [member for clock in clocks for member in self._held.pop(clock)]
