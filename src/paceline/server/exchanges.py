"""What workers exchange without the policy: small payloads, parts of checkpoints, what they witness.

One generation's. Who is live is the group's to say, when something is answered the turns'. Knows no
tensors and no planes.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.encounters import Handover, Meeting
from paceline.server.gathers import Gathers
from paceline.server.hand_ins import HandIns
from paceline.server.members import Group, Member
from paceline.server.turns import Turns
from paceline.server.witnesses import Witnesses
from paceline.transport.messages import Gather, HandIn
from paceline.transport.witness_messages import Witness


class Exchanges:
    """Among the members of ``group``."""

    def __init__(self, *, group: Group, turns: Turns, clock_s: Callable[[], float]) -> None:
        self._group = group
        self._turns = turns
        self._clock_s = clock_s
        self._gathers = Gathers()
        self._hand_ins = HandIns()
        self._witnesses: Witnesses | None = None

    def gather(self, member: Member, request: Gather, world_size: int) -> None:
        """``member`` takes part in an exchange of ``world_size`` ranks, or of those that it names, less
        those who are gone."""
        among = request.ranks or range(world_size)
        self._gathers.add(request.tag, member.rank, request.payload, among)
        self.finish(world_size)

    def finish(self, world_size: int) -> None:
        """Answer the exchanges that all live (or still missing) ranks have joined."""
        if self._group.halted is not None or not self._turns.may_meet():
            return
        members, everyone = self._group.members, range(world_size)
        gone = {rank for rank in everyone if rank in members and members[rank].state != "live"}
        for rank in gone:
            self._gathers.discard(rank)
        for tag, gathered in self._gathers.complete(set(everyone) - gone):
            ranks = tuple(gathered.ranks)
            self._turns.note(Meeting(time_s=self._clock_s(), tag=tag, ranks=ranks))
            for rank in ranks:
                self._group.reply(rank, gathered)

    def hand_in(self, member: Member, part: HandIn) -> None:
        """``member`` has its part of a checkpoint; it is told whether it is to write it."""
        rank = member.rank
        live = self._turns.awaited({one.rank for one in self._group.live()})
        self._turns.note(
            Handover(time_s=self._clock_s(), rank=rank, pass_id=part.pass_id, number=part.number)
        )
        self._group.reply(rank, self._hand_ins.add(rank, part, live))

    def witness(self, member: Member, witness: Witness, world_size: int) -> None:
        """``member`` says how things stand with it."""
        if self._witnesses is None:
            self._witnesses = Witnesses(world_size)
        for sentence in self._witnesses.used_by_some(member.rank, witness):
            self._group.note("info", -1, sentence)
        self._group.reply(member.rank, self._witnesses.compare(member.rank, witness))
