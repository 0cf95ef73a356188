"""Which pushes make an update together: they are held until the quorum of their round has come.

Under per-push strategies the quorum is one, so that each push is its own round. A round knows
who pushed, not what is in the pushes.
"""

from __future__ import annotations

from paceline.policy.members import Member


class Round:
    """The pushes of the round that is open."""

    __slots__ = ("_held", "_orphans", "_quorum")

    def __init__(self, quorum: float) -> None:
        self._quorum = quorum
        self._held: list[Member] = []
        self._orphans = 0

    def add(self, member: Member) -> None:
        """Hold ``member``'s push."""
        self._held.append(member)

    def orphan(self) -> None:
        """Somebody whose push is held is gone: the push stays, nobody else is missed for it."""
        self._orphans += 1

    def holds(self, rank: int) -> bool:
        """Whether a push of ``rank``, perhaps of an earlier life, is held."""
        return any(member.rank == rank for member in self._held)

    @property
    def held(self) -> tuple[Member, ...]:
        """Whose pushes are held."""
        return tuple(self._held)

    def complete(self, expected: int) -> list[Member]:
        """The round's pushes in rank order if enough have come: it is then over.

        ``expected``: members that may yet push, or have. Never complete without a push.
        """
        held = self._held
        if not held or len(held) < min(expected + self._orphans, self._quorum):
            return []
        self._held = []
        self._orphans = 0
        return sorted(held, key=_rank) if len(held) > 1 else held


def _rank(member: Member) -> int:
    return member.rank
