"""What workers hand in for a checkpoint: their own parts of it, until one worker is told to write.

Nobody waits here: whoever is not to write it is answered at once. Knows ranks and numbers; what is
in a part, and what a checkpoint is, only workers know.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from paceline.transport.messages import HandedIn, HandIn

_MOST_OPEN = 4
_NOT_YOU = HandedIn(turn=False, ranks=[], parts=[])


class HandIns:
    """The parts handed in so far, by checkpoint (pass and number), or the latest of each worker."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], dict[int, bytes]] = {}
        self._latest: dict[int, bytes] = {}
        self._begun = (-1, -1)

    def add(self, rank: int, part: HandIn, live: AbstractSet[int]) -> HandedIn:
        """The answer to ``rank``. ``live``: the workers that are awaited where all write together."""
        number = part.pass_id, part.number
        if part.together:
            return self._last(rank, number, part.part, live)
        return self._first(rank, number, part.part)

    def _last(
        self, rank: int, number: tuple[int, int], part: bytes, live: AbstractSet[int]
    ) -> HandedIn:
        parts = self._open.setdefault(number, {})
        if len(self._open) > _MOST_OPEN:  # a worker that broke off will never ask for the others
            del self._open[min(self._open)]
        parts[rank] = part
        if not parts.keys() >= live:
            return _NOT_YOU
        self._open = {later: own for later, own in self._open.items() if later > number}
        return _your_turn(parts)

    def _first(self, rank: int, number: tuple[int, int], part: bytes) -> HandedIn:
        self._latest[rank] = part
        if number <= self._begun:
            return _NOT_YOU
        self._begun = number
        return _your_turn(self._latest)


def _your_turn(parts: Mapping[int, bytes]) -> HandedIn:
    ranks = sorted(parts)
    return HandedIn(turn=True, ranks=ranks, parts=[parts[rank] for rank in ranks])
