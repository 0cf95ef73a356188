"""The state machine that decides a run: facts in, orders out, nothing else.

It has no I/O, clock, thread, randomness or torch, and does not know who drives it. What the
strategies mean is in :mod:`.rules`; the parts are :mod:`.gate` (who may start), :mod:`.rounds`
(which pushes join), :mod:`.decisions` (what becomes of them), :mod:`.passes` and :mod:`.leases`
(who gets which batches), :mod:`.roster` and :mod:`.liveness` (who is there). Here they meet:

=========  ==========  =======================================  =========  ====================
phase      fact        condition                                becomes    orders
=========  ==========  =======================================  =========  ====================
(none)     Join                                                 idle       WakeAt
idle       Pull        has leases, gate admits its clock        running    Start
idle       Pull        otherwise                                waiting
waiting    (any)       leases come, or the floor rises          running    Start
waiting    (any)       its pass ends                            idle       Lease(last)
running    Push                                                 pushed
pushed     (any)       the round is complete (at once if each   idle       Update | Drop, Lease
                       push is its own round)
pushed     (own Push)  its round is over (backup)               idle       Drop(late), Lease
(any)      Save                                                 (same)     Cut
(any)      Leave, or a                                          gone       Release, Halt
           late Tick
=========  ==========  =======================================  =========  ====================

A member is *done* with the pass (inactive: counts neither for the floor nor for the quorum) when,
between windows, it has no leases and can get none. The pass is over when nobody is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, ClassVar

from paceline.events import (
    Fact,
    Halt,
    Join,
    Lease,
    Leave,
    LeaveReason,
    Order,
    Pull,
    Push,
    Release,
    Request,
    Save,
    Start,
    Tick,
    WakeAt,
)
from paceline.policy.cuts import cut
from paceline.policy.decisions import Ledger, drop
from paceline.policy.liveness import Deadlines
from paceline.policy.members import Member
from paceline.policy.passes import Passes
from paceline.policy.roster import Roster
from paceline.policy.rounds import Round
from paceline.policy.rules import rules_of
from paceline.strategies import Strategy


class Coordinator:
    """Decides for ``world_size`` workers under ``strategy``.

    ``evict_after_s``: seconds of silence after which a worker is evicted; inf: never. ``version``,
    ``progress``: where an earlier run had come to, if this one goes on from its checkpoint.
    Facts that a correct driver cannot produce (a Push without a Start) fail assertions.
    """

    def __init__(
        self,
        *,
        strategy: Strategy,
        world_size: int,
        evict_after_s: float = inf,
        version: int = 0,
        progress: int = 0,
    ) -> None:
        assert world_size >= 1, world_size
        self._rules = rules_of(strategy, world_size)
        self._roster = Roster(self._rules, world_size)
        self._round = Round(self._rules.quorum)
        self._ledger = Ledger(self._rules, version=version, progress=progress)
        self._passes = Passes(self._rules, self._roster)
        self._deadlines = Deadlines(evict_after_s)
        self._orders: list[Order] = []
        self._halted = False

    @property
    def version(self) -> int:
        """Updates ordered so far."""
        return self._ledger.version

    @property
    def progress(self) -> int:
        """Loader batches committed by all updates so far, over all passes."""
        return self._ledger.progress

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that are members now, in order."""
        return tuple(sorted(self._roster.members))

    def clock(self, rank: int) -> int:
        """A member's clock: how many of its pushes were decided, counted from where it came in."""
        return self._roster.members[rank].clock

    def would_start(self, rank: int) -> bool:
        """Whether a Pull of ``rank`` would start it at once."""
        member = self._roster.members.get(rank)
        if member is None or self._halted or member.phase != "idle" or not member.leases:
            return False
        return self._roster.gate.admits(member.clock)

    def feed(self, fact: Fact) -> list[Order]:
        """What ``fact`` makes necessary, to be carried out in this order before the next fact.

        After a Halt nothing is ordered any more.
        """
        self._orders = []
        if not self._halted:
            self._handlers[type(fact)](self, fact)
        return self._orders

    # -------------------------------------------------------------------------------- facts

    def _on_join(self, fact: Join) -> None:
        # A push of an earlier life may still be held: nobody is in one round twice.
        clock = self._roster.floor.clock + self._round.holds(fact.rank)
        member = self._roster.join(fact.rank, fact.incarnation, clock)
        self._ledger.weights.join(fact.rank)
        self._deadlines.watch(fact.rank, fact.time_s)
        self._passes.admit(member)
        self._supply(self._passes.open_next())
        self._advance()
        self._set_alarm()

    def _on_leave(self, fact: Leave) -> None:
        member = self._roster.members.get(fact.rank)
        if member is None:
            return
        if fact.reason == "finished":
            member.sits_out = True  # as if it had broken off; its weight stays in the sum
        else:
            self._ledger.weights.forget(fact.rank)
        returned = self._part(member, _LEFT[fact.reason])
        if fact.reason == "dead" and self._rules.halts:
            self._halt(member, "died")
        else:
            self._go_on(resupply=returned)

    def _on_request(self, fact: Request) -> None:
        assert fact.depth == 0 or fact.depth >= fact.window >= 1, fact
        member = self._heard(fact)
        self._ledger.weights.expect(fact.rank, fact.weight)
        self._supply(self._passes.ask(member, fact))
        self._advance()

    def _on_pull(self, fact: Pull) -> None:
        member = self._heard(fact)
        assert member.phase == "idle", f"rank {fact.rank} pulls while {member.phase}"
        member.phase = "waiting"
        if member.leases:
            self._try_start(member)
        elif self._passes.has_ended_for(member):
            assert member.pass_id >= 0, f"rank {fact.rank} pulls without a pass"
            self._dismiss(member)

    def _on_push(self, fact: Push) -> None:
        member = self._heard(fact)
        assert member.phase == "running", f"rank {fact.rank} pushes while {member.phase}"
        member.phase = "pushed"
        member.push = fact
        if fact.weight > 0:
            self._ledger.weights.push(fact.rank, fact.weight)
        if member.clock < self._roster.floor.clock and self._rules.joint:
            self._drop_late(member)
        else:
            self._round.add(member)
        self._advance()

    def _on_tick(self, fact: Tick) -> None:
        if fact.rank is None:
            self._evict(self._deadlines.overdue(fact.time_s))
            self._set_alarm()
        elif fact.rank in self._roster.members:
            self._deadlines.heard(fact.rank, fact.time_s)

    def _on_save(self, fact: Save) -> None:
        self._orders.append(
            cut(
                fact.rank,
                ledger=self._ledger,
                roster=self._roster,
                passes=self._passes,
                held=self._round,
            )
        )

    _handlers: ClassVar[dict[type, Callable[[Coordinator, Any], None]]] = {
        Join: _on_join,
        Leave: _on_leave,
        Request: _on_request,
        Pull: _on_pull,
        Push: _on_push,
        Tick: _on_tick,
        Save: _on_save,
    }

    # ------------------------------------------------------------------------ what follows

    def _advance(self) -> None:
        """Decide the round if it is complete, let through whom the floor held, end the pass."""
        if group := self._round.complete(self._roster.floor.expected):
            self._roster.floor.end_round()
            self._orders += self._ledger.decide(group)
            self._conclude(group)
        for member in self._roster.gate.released():
            if member.phase == "waiting":  # new leases may have started it just now
                self._try_start(member)
        while self._passes.finished:
            for member in self._passes.close():
                self._dismiss(member)
            self._supply(self._passes.open_next())

    def _conclude(self, group: list[Member]) -> None:
        """The pushes of ``group`` are decided: clocks tick, batches follow, stop flags count."""
        stop = False
        for member in group:
            assert member.push is not None
            stop = stop or member.push.stop
            if member.phase == "pushed":
                self._roster.move(member, member.clock + 1)
                member.finish_window()
        if stop:
            self._passes.stop()
        self._supply(group)

    def _drop_late(self, member: Member) -> None:
        reason = f"round {member.clock} is over, round {self._roster.floor.clock} is open"
        self._orders.append(drop(member, "late", reason))
        self._conclude([member])

    def _supply(self, members: list[Member]) -> None:
        if not members:
            return
        grants = self._passes.refill(members)
        for member, batches in grants:
            self._orders.append(
                Lease(rank=member.rank, batches=batches, last=False, reason=self._passes.source)
            )
        for member, _ in grants:
            if member.phase == "waiting":
                self._try_start(member)

    def _try_start(self, member: Member) -> None:
        """Start a waiting member that has leases, or hold it at the gate."""
        floor = self._roster.floor.clock
        if member.clock < floor:  # the round it would have been in went on without it (backup)
            self._roster.move(member, floor)
        if not self._roster.gate.admits(member.clock):
            self._roster.gate.hold(member)
            return
        member.begin(self._ledger.version)
        self._orders.append(
            Start(
                rank=member.rank,
                clock=member.clock,
                version=member.version,
                batches=member.running,
                reason=self._rules.why_start(member.clock - floor),
            )
        )

    def _dismiss(self, member: Member) -> None:
        member.phase = "idle"
        self._orders.append(
            Lease(rank=member.rank, batches=(), last=True, reason="the pass is over")
        )

    # ------------------------------------------------------------------------- membership

    def _heard(self, fact: Request | Pull | Push) -> Member:
        self._deadlines.heard(fact.rank, fact.time_s)
        return self._roster.members[fact.rank]

    def _part(self, member: Member, reason: str) -> bool:
        """``member`` is none any more. Whether it left batches that others shall compute."""
        if member.phase == "pushed":
            self._round.orphan()
        self._deadlines.forget(member.rank)
        self._roster.remove(member)
        returned = self._passes.leave(member)
        self._orders.append(
            Release(rank=member.rank, clock=member.clock, returned=returned, reason=reason)
        )
        return bool(returned)

    def _evict(self, ranks: Iterable[int]) -> None:
        late = [self._roster.members[rank] for rank in ranks]
        returned = False
        for member in late:
            self._ledger.weights.forget(member.rank)
            returned |= self._part(member, "silent for too long")
        if late and self._rules.halts:
            self._halt(late[0], "was silent for too long")
        elif late:
            self._go_on(resupply=returned)

    def _go_on(self, *, resupply: bool) -> None:
        self._supply(self._roster.in_order() if resupply else self._passes.open_next())
        self._advance()

    def _halt(self, member: Member, what: str) -> None:
        self._halted = True
        reason = f"rank {member.rank} {what}, and the strategy needs every worker"
        self._orders.append(Halt(rank=member.rank, reason=reason))

    def _set_alarm(self) -> None:
        wake_s = self._deadlines.wake_s()
        if wake_s is not None and not self._halted:
            self._orders.append(WakeAt(time_s=wake_s, reason="a worker may then be overdue"))


_LEFT: dict[LeaveReason, str] = {
    "finished": "its script ended",
    "departed": "it left before the end",
    "dead": "its process died",
}
