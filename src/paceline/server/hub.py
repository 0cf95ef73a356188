"""What every run needs, on either plane: joining, exchanging, noticing deaths, stopping everyone.

The hub turns connections into members and hands the server plane's requests to the plane. As long
as no plane has started (or on the collective plane, where the server has none) a dead or silent
worker ends the run; afterwards the policy decides. Knows no tensors and imports no torch.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Literal

from paceline.encounters import Failure
from paceline.server.connection import Connection, Line, drain, log
from paceline.server.deaths import Deaths
from paceline.server.door import Door
from paceline.server.exchanges import Exchanges
from paceline.server.launchers import Launchers
from paceline.server.loop import Loop
from paceline.server.members import Group, Member
from paceline.server.plane_protocol import PLANE_REQUESTS, Plane
from paceline.server.turns import Turns
from paceline.transport.framing import FrameError
from paceline.transport.messages import (
    Abort,
    Beat,
    Bye,
    Filled,
    Gather,
    Gone,
    HandIn,
    Hello,
    ProcessEnded,
    Stop,
    Welcome,
)
from paceline.transport.witness_messages import Witness

REMIND_EVERY_S = 20.0
UNDER_WAY_S = 1.0


class Hub:
    """Membership of one run. ``make_plane`` builds the server plane when first asked for."""

    def __init__(
        self,
        *,
        loop: Loop,
        group: Group,
        make_plane: Callable[[Hello], Plane],
        linger_s: float,
        turns: Turns,
    ) -> None:
        self.group = group
        self._loop = loop
        self._group = group
        self._turns = turns
        turns.attend(self)
        self._make_plane = make_plane
        self._linger_s = linger_s
        self._busy_s = loop.clock_s()
        self._reminded_s = self._busy_s
        self._deaths = Deaths(loop)
        self._exchanges = self._new_exchanges()
        self._door = Door(group)
        self._launchers = Launchers()
        self._plane: Plane | None = None
        self._connections: set[Line] = set()
        self._roles: dict[Line, Member] = {}
        self._has_parent = False

    # ------------------------------------------------------------------------ the server's side

    def accept(self, listener: socket.socket) -> None:
        """Somebody connected."""
        raw, _ = listener.accept()
        self.admit(Connection(raw, self._loop, self.receive))

    def admit(self, line: Line) -> None:
        """Somebody is connected."""
        self._connections.add(line)

    def hung_up(self, line: Line) -> None:
        """A connection from another host ended. That is how a death there is seen from here: once both
        of a worker's have, or one has for a while (what it said on the other may be under way)."""
        self._launchers.hung_up(line)
        member = self._roles.get(line)
        if member is not None:
            both = not any(one is not None and one.open for one in (member.control, member.data))
            due_s = self._loop.clock_s() + (0.0 if both else UNDER_WAY_S)
            self._loop.call_at(due_s, lambda: self._lost_touch(member))

    def lose_touch(self, rank: int) -> None:
        """A shard has lost its connection to the worker of ``rank``."""
        if (member := self._group.members.get(rank)) is not None:
            self._lost_touch(member)

    def _lost_touch(self, member: Member) -> None:
        if member.state == "live" and self._group.members.get(member.rank) is member:
            self._died(member)
            for line in (member.control, member.data):
                if line is not None:
                    line.close()  # the process may live; it is a member no longer

    def watch_parent(self, pid: int) -> None:
        """End the run when process ``pid`` ends, and not before it says so."""
        self._has_parent = True
        self._deaths.watch(pid, lambda: self.shut_down("the process that started the run is gone"))

    def shut_down(self, text: str) -> None:
        """End the run from outside."""
        if self._door.has_early or any(True for _ in self._group.live()):
            self._group.halt(Stop(kind="shutdown", rank=-1, text=text))
        self._loop.stop()

    def look_around(self) -> None:
        """A few times a second: who died unseen, who is silent, is anybody left?"""
        self._deaths.poll()
        self._turns.look_around()
        self._connections = {one for one in self._connections if one.open}
        self._group.observers = [one for one in self._group.observers if one.open]
        if self._door.greeting is not None:
            self._look_after_members(self._door.greeting.evict_after_s)
            self._give_up_the_absent()
            self._remind_of_the_late()
        if self._is_over():
            self._loop.stop()

    def close(self) -> None:
        """Hang up on everyone."""
        for connection in self._connections:
            connection.close()
        self._deaths.close()
        if self._plane is not None:
            self._plane.close()

    def _look_after_members(self, evict_after_s: float) -> None:
        silent = [] if self._policy_decides else self._group.silent(evict_after_s)
        for member in silent:
            self._lose_silent(member)
        self.meet()  # the policy may have evicted somebody whom others wait for

    def _give_up_the_absent(self) -> None:
        """Stop those who wait for a worker that ended before it was seen here."""
        if cause := self._launchers.cause(self._door.absent()):
            self._group.halt(Stop(kind="peer-failed", rank=-1, text=cause))

    def _remind_of_the_late(self) -> None:
        """Say whom the others have been waiting for, once a while."""
        now_s = self._loop.clock_s()
        if self._door.all_came or self._group.halted is not None:
            self._reminded_s = now_s
        elif now_s - self._reminded_s > REMIND_EVERY_S:
            self._reminded_s = now_s
            late = self._door.absent()
            who = f"rank{'s' * (len(late) > 1)} {', '.join(map(str, late))}"
            self._group.note("info", -1, f"still waiting for {who} to make a paceline.Worker")

    def _is_over(self) -> bool:
        group = self._group
        now_s = self._loop.clock_s()
        if any(True for _ in group.live()) or self._door.has_early:
            self._busy_s = now_s
            return False
        if self._has_parent and group.members:
            return False  # the scripts may make further Workers; the parent knows when they ended
        return self._door.all_came or now_s - self._busy_s > self._linger_s

    # -------------------------------------------------------------------------------- messages

    def receive(self, connection: Line, message: object) -> None:
        """``message`` came over ``connection``. Raises FrameError if nobody may say so there."""
        if isinstance(message, Hello):
            self._greet(connection, message)
        elif isinstance(message, Abort) and connection.trusted:
            self._abort(connection, message)
        elif isinstance(message, ProcessEnded):
            self._launchers.ended(connection, message)
        elif (member := self._roles.get(connection)) is None:
            raise FrameError(f"{type(message).__name__} before Hello")
        elif connection is member.control and isinstance(message, Beat):
            self._beat(member, message)
        elif connection is member.data and isinstance(message, Filled):
            self._filled(member, message)
        elif connection is member.data and not member.owed:
            self._request(member, message)
        else:
            raise FrameError(f"unexpected {type(message).__name__}")

    def _request(self, member: Member, request: object) -> None:
        member.owed = type(request).__name__
        member.heard_s = self._loop.clock_s()
        if self._turns.lets_in(member, request):
            self.serve(member, request)

    def serve(self, member: Member, request: Any) -> None:
        """Answer ``request``, or have it answered later."""
        if isinstance(request, Bye):
            self._bye(member, request)
        elif isinstance(request, Abort):
            self._fail(member, request)
        elif member.state == "evicted":
            text = f"{member} was evicted and is a member no longer"
            self._group.stop(member, Stop(kind="evicted", rank=member.rank, text=text))
        elif self._group.halted is not None:
            self._group.stop(member, self._group.halted)
        elif isinstance(request, Gather):
            self._exchanges.gather(member, request, self._world_size)
        elif isinstance(request, Witness):
            self._exchanges.witness(member, request, self._world_size)
        elif isinstance(request, HandIn):
            self._exchanges.hand_in(member, request)
        elif isinstance(request, PLANE_REQUESTS):
            self._plane_of_run().handle(member, request)
        else:
            raise FrameError(f"unexpected {member.owed}")

    def _filled(self, member: Member, filled: Filled) -> None:
        if self._plane is not None and member.state == "live" and self._group.halted is None:
            self._plane.filled(member, filled)

    def _plane_of_run(self) -> Plane:
        assert self._door.greeting is not None
        if self._plane is None:
            self._plane = self._make_plane(self._door.greeting)
        return self._plane

    def _beat(self, member: Member, beat: Beat) -> None:
        member.phase, member.phase_age_s = beat.phase, beat.phase_age_s
        member.heard_s = self._loop.clock_s()
        if self._plane is not None and self._policy_decides and member.state == "live":
            self._plane.heard(member)

    def _abort(self, connection: Line, abort: Abort) -> None:
        member = self._roles.get(connection)
        if member is None:
            self._group.halt(Stop(kind=abort.kind, rank=-1, text=abort.text))
        elif self._turns.lets_in(member, abort):
            self.serve(member, abort)

    def _fail(self, member: Member, abort: Abort) -> None:
        if self._group.halted is not None:
            return
        self._turns.note(Failure(time_s=self._loop.clock_s(), rank=member.rank, text=abort.text))
        text = f"{member} failed: {abort.text}" if abort.kind == "peer-failed" else abort.text
        self._group.halt(Stop(kind=abort.kind, rank=member.rank, text=text))

    # --------------------------------------------------------------------------- coming, going

    def _greet(self, connection: Line, hello: Hello) -> None:
        problem = self._door.objection(hello) or self._launchers.objection(hello.launcher)
        if problem:
            log(f"{_called(hello)} (pid {hello.pid}) refused: {problem}")
            connection.send(Stop(kind="refused", rank=hello.rank, text=problem))
        elif hello.role == "observer":
            connection.trust("an observer", urgent=True)
            self._group.observers.append(connection)
            self._launchers.came(connection, hello.launcher)
            connection.send(Welcome(incarnation=0))
        elif self._door.is_early(hello):
            self._door.keep(connection, hello)
            self._begin_next()
        else:
            self._attach(connection, hello)

    def _attach(self, connection: Line, hello: Hello) -> None:
        self._door.open(hello)
        member = self._group.members.get(hello.rank) or self._enter(connection, hello)
        if getattr(member, hello.role) is not None:
            raise FrameError(f"a second {hello.role} connection of {member}")
        setattr(member, hello.role, connection)
        self._roles[connection] = member
        connection.trust(f"{member}, {hello.role}", urgent=hello.role == "control")
        connection.send(self._group.halted or Welcome(incarnation=0))

    def _enter(self, connection: Line, hello: Hello) -> Member:
        member = Member(
            rank=hello.rank, pid=hello.pid, heard_s=self._loop.clock_s(),
            host=(hello.host or "another host") if connection.remote else "",
        )  # fmt: skip
        self._group.members[hello.rank] = member
        if not connection.remote:
            self._deaths.watch(hello.pid, lambda: self._died(member))
        self._group.note("joined", member.rank, f"{member} joined")
        return member

    def _begin_next(self) -> None:
        """When all have left, those whose scripts make another Worker begin afresh."""
        early = self._door.let_in()
        if not early:
            return
        lost = self._door.missing()
        if lost is not None:
            self._lose(lost, f"{lost} has ended, and another Worker needs every rank")
        else:
            self._forget_generation()
        for connection, hello in early:
            if self._group.halted is not None:
                connection.send(self._group.halted)
            else:
                self._attach(connection, hello)

    def _forget_generation(self) -> None:
        if self._plane is not None:
            self._plane.close()
        self._plane = None
        self._exchanges = self._new_exchanges()
        self._roles = {}
        self._door.forget()
        self._group.members = {}

    def _bye(self, member: Member, bye: Bye) -> None:
        self._group.reply(member.rank, Gone())
        if member.state == "live":
            member.state = "left"
            self._group.note("left", member.rank, f"{member} {bye.reason}")
            self._gone(member, bye.reason)

    def _died(self, member: Member) -> None:
        """Its complete last request counts: the push of a worker that then died is a push."""
        if self._group.members.get(member.rank) is not member:
            self._missed(member)
            return
        drain((member.data, member.control))
        if member.state == "left":
            member.state = "ended"
        elif member.state == "live" and self._turns.lets_go(member):
            self.bury(member)

    @property
    def all_came(self) -> bool:
        """Whether every rank of this generation has been here."""
        return self._door.all_came

    def bury(self, member: Member) -> None:
        """Its process ended, and it had not left."""
        member.state = "dead"
        self._gone(member, "dead")

    def wake(self) -> None:
        """Let the policy look who is overdue."""
        if self._plane is not None and self._policy_decides:
            self._plane.wake()

    def meet(self) -> None:
        """Answer the exchanges that are complete."""
        if self._door.greeting is not None:
            self._exchanges.finish(self._world_size)

    def _missed(self, former: Member) -> None:
        """A process ended that was a member of an earlier generation: is it awaited in this one?"""
        if self._door.greeting is not None and former.rank not in self._group.members:
            self._lose(former, f"{former} ended, but others made a further Worker and wait for it")

    def _gone(self, member: Member, reason: Literal["finished", "departed", "dead"]) -> None:
        if self._group.halted is not None:
            return
        if self._plane is not None and self._policy_decides:
            self._plane.leave(member, reason)
        elif reason == "dead":
            self._lose(member, f"{member} died, {member.doing(self._loop.clock_s())}")
        self.meet()
        self._begin_next()

    def _lose_silent(self, member: Member) -> None:
        now_s = self._loop.clock_s()
        silent = f"{member} was silent for {now_s - member.heard_s:.1f} s"
        text = f"{silent} ({member.doing(now_s)})"
        self._group.evict(member, f"{text} and is evicted")
        self._lose(member, text)

    def _lose(self, member: Member, text: str) -> None:
        self._group.halt(Stop(kind="peer-lost", rank=member.rank, text=text))

    @property
    def _policy_decides(self) -> bool:
        return self._plane is not None and self._plane.started

    @property
    def _world_size(self) -> int:
        assert self._door.greeting is not None
        return self._door.greeting.world_size

    def _new_exchanges(self) -> Exchanges:
        return Exchanges(group=self._group, turns=self._turns, clock_s=self._loop.clock_s)


def _called(hello: Hello) -> str:
    if hello.launcher is not None:
        return f"the launcher of host {hello.launcher.number}"
    return f"{hello.role} connection of rank {hello.rank}"
