"""Which of a group's batches are which member's: in turn, in the order in which they are leased.

So any members' windows of a group's window are equal, give or take one batch, and each member can load
ahead what will be its own. Every member computes the same from what the leader tells.
"""

from __future__ import annotations

from collections.abc import Iterable


class Shares:
    """Of one pass, for the member at ``place`` of a group of ``size``."""

    def __init__(self, *, size: int, place: int) -> None:
        self._size = size
        self._place = place
        self._turn = 0
        self._owners: dict[int, int] = {}
        self._fresh: list[int] = []

    def lease(self, batches: Iterable[int]) -> None:
        """These are the group's from now on."""
        for batch in batches:
            self._owners[batch] = self._turn % self._size
            self._turn += 1
            if self._owners[batch] == self._place:
                self._fresh.append(batch)

    def fresh(self) -> list[int]:
        """This member's batches that were leased since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def of(self, batches: Iterable[int]) -> tuple[int, ...]:
        """This member's of a window's ``batches``, all of which were leased."""
        return tuple(batch for batch in batches if self._owners.pop(batch) == self._place)
