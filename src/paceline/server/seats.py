"""What the server plane keeps for each worker between a request and its answer.

Holds values only; :mod:`paceline.server.plane` and :mod:`paceline.server.deeds` do the work.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.server.members import Member
from paceline.server.opening import Mapped
from paceline.transport.messages import OpenPass, Push

BROKEN = "a backward pass that broke off, half sent"


@dataclass(kw_only=True, slots=True)
class Seat:
    """One worker's place at the server plane.

    ``wish``: what it said of its pass. ``leases``: batches leased to it that it has not been told
    of. ``push``: the one that is not decided yet; ``filled``: how many of its buckets were full
    before it came, ``bad``: what in it is not finite. ``asked_s``: when its last request came.
    """

    member: Member
    mapped: Mapped
    wish: OpenPass | None = None
    leases: list[int] = field(default_factory=list)
    push: Push | None = None
    filled: int = 0
    bad: str = ""
    asked_s: float = 0.0

    def take_leases(self) -> list[int]:
        """The leases it is being told of now."""
        leases, self.leases = self.leases, []
        return leases


class Refusals:
    """Counts each rank's pushes that were not finite, for the sentences at the run's end."""

    def __init__(self) -> None:
        self._first: dict[int, str] = {}
        self._total: dict[int, int] = {}
        self._in_a_row: dict[int, int] = {}
        self._longest: dict[int, int] = {}

    def refused(self, rank: int, parameter: str) -> bool:
        """A push was refused because of ``parameter``; True if it is the rank's first."""
        self._total[rank] = self._total.get(rank, 0) + 1
        self._in_a_row[rank] = self._in_a_row.get(rank, 0) + 1
        self._longest[rank] = max(self._longest.get(rank, 0), self._in_a_row[rank])
        self._first.setdefault(rank, parameter)
        return self._total[rank] == 1

    def finite(self, rank: int) -> None:
        """A push of ``rank`` was finite."""
        self._in_a_row.pop(rank, None)

    def sentences(self) -> list[tuple[int, str]]:
        """``(rank, sentence)`` for each rank that had pushes refused."""
        return [(rank, self._sentence(rank)) for rank in sorted(self._total)]

    def _sentence(self, rank: int) -> str:
        total = self._total[rank]
        were = "push of rank {rank} was" if total == 1 else "pushes of rank {rank} were"
        return (
            f"{total} {were.format(rank=rank)} refused as not finite, "
            f"at most {self._longest[rank]} in a row; the first in {self._first[rank]!r}"
        )
