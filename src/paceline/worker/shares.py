"""Which of a group's batches are which member's: in turn, in the order in which they are leased.

So any members' windows of a group's window are equal, give or take one batch, and each member can load
ahead what will be its own. Every member computes the same from what the leader tells. Where members have
data of their own (:class:`OwnShares`) number n of the group's is batch n // size of member n mod size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class Shares(Protocol):
    """Of one pass, for one member."""

    def lease(self, batches: Iterable[int]) -> None:
        """These are the group's from now on."""

    def fresh(self) -> list[int]:
        """This member's batches that were leased since the last call."""

    def of(self, batches: Iterable[int]) -> tuple[int, ...]:
        """This member's of a window's ``batches``, all of which were leased."""

    def total(self, totals: Sequence[int | None]) -> int | None:
        """How many the group's pass has, by what each member knows of its end."""


class SharedOut:
    """All members read the same data; for the member at ``place`` of a group of ``size``."""

    def __init__(self, *, size: int, place: int) -> None:
        self._size = size
        self._place = place
        self._turn = 0
        self._owners: dict[int, int] = {}
        self._fresh: list[int] = []

    def lease(self, batches: Iterable[int]) -> None:
        for batch in batches:
            self._owners[batch] = self._turn % self._size
            self._turn += 1
            if self._owners[batch] == self._place:
                self._fresh.append(batch)

    def fresh(self) -> list[int]:
        fresh, self._fresh = self._fresh, []
        return fresh

    def of(self, batches: Iterable[int]) -> tuple[int, ...]:
        return tuple(batch for batch in batches if self._owners.pop(batch) == self._place)

    def total(self, totals: Sequence[int | None]) -> int | None:
        return min((total for total in totals if total is not None), default=None)


class OwnShares:
    """Each member has data of its own; this one's has ``count`` batches, None while nobody knows."""

    def __init__(self, *, size: int, place: int, count: int | None) -> None:
        self._size = size
        self._place = place
        self._count = count
        self._fresh: list[int] = []

    def lease(self, batches: Iterable[int]) -> None:
        self._fresh += self.of(batches)

    def fresh(self) -> list[int]:
        fresh, self._fresh = self._fresh, []
        return fresh

    def of(self, batches: Iterable[int]) -> tuple[int, ...]:
        own = (batch // self._size for batch in batches if batch % self._size == self._place)
        return tuple(batch for batch in own if self._count is None or batch < self._count)

    def total(self, totals: Sequence[int | None]) -> int | None:
        known = [total for total in totals if total is not None]
        return self._size * max(known) if len(known) == self._size else None
