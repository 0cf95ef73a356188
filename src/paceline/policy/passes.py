"""Passes over the data: when one opens, who takes part, who is done with it, when it is over.

A pass opens at the first Request for it (where batches are dealt in rounds: when every member has
asked) and is over when nobody is active. A Request for the next pass waits until then. Gives no
orders; what a pass means to the driver is the coordinator's business.
"""

from __future__ import annotations

from collections.abc import Iterable

from paceline.events import Left, Request
from paceline.policy.leases import Dealt, Grant, Own, Shared, Stopped, Supply
from paceline.policy.members import Member
from paceline.policy.roster import Roster
from paceline.policy.rules import Rules


class Passes:
    """The open pass, if any, and the Requests for the one after it."""

    __slots__ = ("_dealt", "_pass_id", "_pending", "_roster", "_supply", "_was_dry")

    def __init__(self, rules: Rules, roster: Roster) -> None:
        self._dealt = rules.dealt
        self._roster = roster
        self._pending: dict[int, Request] = {}
        self._pass_id = -1
        self._supply: Supply | None = None
        self._was_dry = False

    @property
    def finished(self) -> bool:
        """Whether a pass is open in which nothing can happen any more.

        If every member is gone and batches are left, whoever comes next goes on with them.
        """
        if self._supply is None or self._roster.floor.active:
            return False
        return self._supply.dry or bool(self._roster.members)

    @property
    def source(self) -> str:
        """Where leases of the open pass come from, in words."""
        assert self._supply is not None
        return self._supply.words

    def has_ended_for(self, member: Member) -> bool:
        """Whether the pass that ``member`` asked for last is over."""
        here = self._supply is not None and member.pass_id == self._pass_id
        return not here and member.rank not in self._pending

    def ask(self, member: Member, request: Request) -> list[Member]:
        """``member`` opens a pass, or says more about it; who is to be supplied now."""
        if request.pass_id > self._pass_id:
            assert member.phase == "idle", f"rank {member.rank} opens a pass inside a window"
            self._pending[member.rank] = request
            return self.open_next() if self._supply is None else self._break_off(member)
        if self._supply is None or request.pass_id < self._pass_id:
            member.pass_id = request.pass_id
            return []
        return self._roster.in_order() if self._enter(member, request) else [member]

    def open_next(self) -> list[Member]:
        """Open the next pass if it is time; who is then to be supplied."""
        if self._supply is not None or not self._pending or not self._roster.assembled:
            return []
        if self._dealt and len(self._pending) < len(self._roster.members):
            return []
        members = self._roster.in_order()
        self._pass_id = min(request.pass_id for request in self._pending.values())
        self._supply = self._new_supply(members)
        self._was_dry = False
        self._bring_back(members)
        return members

    def close(self) -> list[Member]:
        """The pass is over; the members that wait to be told so."""
        self._supply = None
        members = self._roster.in_order()
        for member in members:
            member.depth = 0
            member.sits_out = False
        return [m for m in members if m.phase == "waiting" and self.has_ended_for(m)]

    def admit(self, member: Member) -> None:
        """A worker came. Where batches are dealt in rounds it takes part from the next pass on."""
        member.sits_out = self._supply is not None and self._dealt
        if self._supply is not None and self._can_get(member):
            self._roster.activate([member])

    def refill(self, members: Iterable[Member]) -> list[Grant]:
        """Lease to ``members`` what they may have now; whoever can get nothing is done."""
        assert self._supply is not None
        grants = self._supply.refill(members)
        comers = [member for member, _ in grants if not member.active]
        dry = self._supply.dry
        if dry != self._was_dry:  # that concerns those who have not asked for batches yet
            members = self._roster.in_order()
            comers += [m for m in members if not m.leases and self._can_get(m)]
        self._was_dry = dry
        if comers:
            self._roster.activate(comers)
        self._settle(members)
        return grants

    def leave(self, member: Member) -> tuple[int, ...]:
        """``member`` is gone; those of its undecided batches that others shall compute."""
        self._pending.pop(member.rank, None)
        return self._give_back(member) if self._supply is not None else ()

    def stop(self) -> None:
        """No more starts; the windows that run are still to be decided."""
        assert self._supply is not None
        self._supply = Stopped(self._supply)
        members = self._roster.in_order()
        for member in members:
            member.leases.clear()
        self._settle(members)

    def left(self, held: Iterable[Member]) -> tuple[int, tuple[Left, ...]]:
        """The open pass and its undecided batches (-1 and none if no pass is open).

        ``held``: members, perhaps gone, whose push is in the round that is open.
        """
        if self._supply is None:
            return -1, ()
        holders = {id(one): one for one in (*self._roster.in_order(), *held)}
        return self._pass_id, self._supply.left(holders.values())

    def _new_supply(self, members: list[Member]) -> Supply:
        asked = [r for r in self._pending.values() if r.pass_id == self._pass_id]
        split = asked[0].split
        assert all(r.split == split for r in asked), "either all workers split the data or none"
        if not split:
            return Own()
        return Dealt(members) if self._dealt else Shared(self._roster.members)

    def _bring_back(self, members: list[Member]) -> None:
        """Everybody takes part in the pass that opens, but those who have asked for a later one."""
        asked = self._pending
        for member in members:
            request = asked.get(member.rank)
            member.sits_out = request is not None and request.pass_id > self._pass_id
        takers = [member for member in members if not member.sits_out]
        self._roster.activate(takers)
        for member in takers:
            if member.rank in asked:
                self._enter(member, asked.pop(member.rank))

    def _enter(self, member: Member, request: Request) -> bool:
        """Whether that concerns the others too: batches came back, or do not exist after all."""
        assert self._supply is not None
        member.enter(request)
        fewer = self._supply.learn(member, request.total)
        back = self._give_back(member) if request.depth == 0 else ()
        return fewer or bool(back)

    def _break_off(self, member: Member) -> list[Member]:
        """``member`` is on to a later pass; who is to be supplied with what it held of this one."""
        member.sits_out = True
        return self._roster.in_order() if self._give_back(member) else [member]

    def _give_back(self, member: Member) -> tuple[int, ...]:
        assert self._supply is not None
        member.depth = 0
        return self._supply.give_back(member, member.surrender())

    def _settle(self, members: Iterable[Member]) -> None:
        """Whoever is between windows, has no batches and can get none is done with the pass."""
        empty = [m for m in members if not m.leases and m.phase in ("idle", "waiting")]
        if empty:
            self._roster.retire([member for member in empty if not self._can_get(member)])

    def _can_get(self, member: Member) -> bool:
        assert self._supply is not None
        return not member.sits_out and self._supply.has_more(member)
