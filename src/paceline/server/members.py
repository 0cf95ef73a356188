"""Who takes part in the run, how to reach them, and how to tell them and the user what happened.

A member is one worker process: its rank, its two connections and what is known of its state. The
group sends replies, stops and notices; it does not decide who must stop or why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from paceline import trace
from paceline.recorder import Recorder
from paceline.server.connection import Line
from paceline.transport import messages
from paceline.transport.messages import Notice, Stop

State = Literal["live", "dead", "evicted", "left", "ended"]
NoticeKind = Literal["joined", "died", "evicted", "followed", "left", "halted", "diverged", "info"]
PROGRESS_EVERY_S = 0.2


@dataclass(kw_only=True, slots=True)
class Member:
    """One worker. ``state``: "ended" is a process that ended after its worker had "left".

    ``owed``: the type of the request it waits for an answer to, "" if none. ``host``: "" for the
    server's own.

    ``heard_s``: when it was last heard from; then its main thread had been in ``phase`` for
    ``phase_age_s``.
    """

    rank: int
    pid: int
    heard_s: float
    host: str = ""
    state: State = "live"
    phase: str = "start"
    phase_age_s: float = 0.0
    owed: str = ""
    control: Line | None = None
    data: Line | None = None

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.place})"

    @property
    def place(self) -> str:
        """``pid 71``, and on which host unless it is the server's."""
        return f"pid {self.pid}{' on ' * bool(self.host)}{self.host}"

    def doing(self, now_s: float) -> str:
        """``phase 'forward' for 3.1 s``, as far as is known."""
        return f"phase '{self.phase}' for {self.phase_age_s + now_s - self.heard_s:.1f} s"


class Group:
    """All members and observers of the run. ``halted``: the Stop that ended it, None while it goes."""

    def __init__(self, *, recorder: Recorder, clock_s: Callable[[], float]) -> None:
        self.members: dict[int, Member] = {}
        self.observers: list[Line] = []
        self.halted: Stop | None = None
        self._recorder = recorder
        self._clock_s = clock_s

    def live(self) -> Iterator[Member]:
        """The members that still take part, in rank order."""
        return (self.members[r] for r in sorted(self.members) if self.members[r].state == "live")

    def reply(self, rank: int, message: messages.Message) -> None:
        """Answer the request that ``rank`` waits with. The dead, and the stopped, get nothing."""
        member = self.members[rank]
        if member.owed and member.data is not None:
            member.owed = ""
            member.data.send(message)

    def stop(self, member: Member, stop: Stop) -> None:
        """Tell one worker to stop, on both its connections and instead of any reply."""
        member.owed = ""
        for connection in (member.data, member.control):
            if connection is not None:
                connection.send(stop)

    def halt(self, stop: Stop) -> None:
        """Stop the run: every worker but ``stop.rank``, and whoever asks for anything later."""
        if self.halted is not None:
            return
        self.halted = stop
        for member in self.live():
            if member.rank != stop.rank:
                self.stop(member, stop)
        self.note("halted", stop.rank, stop.text)

    def evict(self, member: Member, text: str, kind: NoticeKind = "evicted") -> None:
        """Tell a worker that was silent for too long, or has lost one of its group ("followed"), that
        it is a member no longer."""
        member.state = "evicted"
        self.stop(member, Stop(kind="evicted", rank=member.rank, text=text))
        self.note(kind, member.rank, text)

    def note(self, kind: NoticeKind, rank: int, text: str) -> None:
        """A sentence for the user, to the trace and to whoever observes."""
        self._recorder.write(trace.Note(time_s=self._clock_s(), kind=kind, rank=rank, text=text))
        self.show(Notice(kind=kind, rank=rank, text=text))

    def show(self, message: messages.Message) -> None:
        """Send to the observers."""
        for observer in self.observers:
            observer.send(message)

    def silent(self, after_s: float) -> list[Member]:
        """Live members not heard from for longer than ``after_s``."""
        now_s = self._clock_s()
        return [member for member in self.live() if now_s - member.heard_s > after_s]
