"""Exchanges of small payloads among all live workers: complete when each of them has sent its own.

Knows ranks and tags; who is live is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from paceline.transport.messages import Gathered


class Gathers:
    """The exchanges under way. A tag can be used again once its exchange is complete."""

    def __init__(self) -> None:
        self._pending: dict[str, dict[int, bytes]] = {}
        self._invited: dict[str, frozenset[int]] = {}

    def add(self, tag: str, rank: int, payload: bytes, among: Iterable[int]) -> None:
        """``rank`` takes part in the exchange named ``tag`` of all ranks ``among`` whom it is."""
        self._pending.setdefault(tag, {})[rank] = payload
        self._invited[tag] = frozenset(among)

    def discard(self, rank: int) -> None:
        """``rank`` is gone; what it sent into unfinished exchanges goes with it."""
        for payloads in self._pending.values():
            payloads.pop(rank, None)

    def complete(self, expected: AbstractSet[int]) -> list[tuple[str, Gathered]]:
        """Take out the exchanges into which all invited of the ``expected`` ranks have sent, by their
        tags."""
        pending, invited = self._pending, self._invited
        done = [tag for tag, got in pending.items() if got.keys() >= expected & invited[tag]]
        for tag in done:
            del invited[tag]
        return [(tag, _gathered(pending.pop(tag))) for tag in done]


def _gathered(payloads: dict[int, bytes]) -> Gathered:
    ranks = sorted(payloads)
    return Gathered(ranks=ranks, payloads=[payloads[rank] for rank in ranks])
