"""The members of the run: who is one, where each stands, and who counts for floor and quorum."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.policy.gate import Floor, Gate, RoundClock, Slowest
from paceline.policy.members import Member
from paceline.policy.rules import Rules


class Roster:
    """``members`` by rank; ``floor`` and ``gate`` as they follow from their clocks."""

    __slots__ = ("_incarnations", "_missing", "floor", "gate", "members")

    def __init__(self, rules: Rules, world_size: int) -> None:
        self.members: dict[int, Member] = {}
        self.floor: Floor = RoundClock() if rules.joint else Slowest()
        self.gate = Gate(self.floor, rules.lead_clocks)
        self._incarnations: dict[int, int] = {}
        self._missing = world_size

    @property
    def assembled(self) -> bool:
        """Whether ``world_size`` workers have joined once: nothing starts before."""
        return self._missing <= 0

    def in_order(self) -> list[Member]:
        """The members in rank order."""
        return [self.members[rank] for rank in sorted(self.members)]

    def join(self, rank: int, incarnation: int, clock: int) -> Member:
        """A new member at ``clock``, not active yet."""
        assert rank not in self.members, f"rank {rank} is a member already"
        assert incarnation > self._incarnations.get(rank, -1), f"rank {rank}: an earlier life"
        self._missing -= rank not in self._incarnations
        self._incarnations[rank] = incarnation
        member = self.members[rank] = Member(rank=rank, clock=clock)
        return member

    def remove(self, member: Member) -> None:
        """``member`` is one no longer."""
        del self.members[member.rank]
        self.retire([member])
        member.phase = "gone"

    def activate(self, members: Iterable[Member]) -> None:
        """``members`` count, all at once: at the floor if they had fallen behind."""
        newly = [member for member in members if not member.active]
        for member in newly:
            member.active = True
            member.clock = max(member.clock, self.floor.clock)
        if newly:
            self.floor.enter([member.clock for member in newly])

    def retire(self, members: Iterable[Member]) -> None:
        """``members`` count no longer, all at once, and wait for nobody."""
        newly = [member for member in members if member.active]
        for member in newly:
            member.active = False
            self.gate.forget(member)
        if newly:
            self.floor.leave([member.clock for member in newly])

    def move(self, member: Member, clock: int) -> None:
        """An active member's clock becomes ``clock``, or the floor if that is higher."""
        floor = self.floor
        if clock < floor.clock:
            clock = floor.clock
        floor.tick(member.clock, clock)
        member.clock = clock
