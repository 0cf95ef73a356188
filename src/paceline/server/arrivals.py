"""A push is here when every shard has its part of it. Counts parts; knows nothing of what is in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class Arrivals:
    """Pushes whose parts come to ``shards`` other processes, too."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._came: Counter[int] = Counter()
        self._waiting: dict[int, Callable[[], None]] = {}

    def pushed(self, rank: int, go_on: Callable[[], None]) -> None:
        """The server has the push of ``rank``; ``go_on()`` once all have."""
        self._waiting[rank] = go_on
        self._go_on(rank)

    def came(self, rank: int) -> None:
        """One more shard has its part."""
        self._came[rank] += 1
        self._go_on(rank)

    def forget(self, rank: int) -> None:
        """``rank`` is gone: a push of it that is not complete never will be."""
        self._waiting.pop(rank, None)

    def _go_on(self, rank: int) -> None:
        if self._came[rank] >= self._shards and rank in self._waiting:
            self._came[rank] -= self._shards
            self._waiting.pop(rank)()
