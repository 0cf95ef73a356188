"""Has the server serve what reaches it in the order of an earlier run, and compares as it goes.

Whatever may change what is computed waits until the record says that it is its turn. The policy is
fed the facts with their recorded times, and is a pure function of them; what it orders is compared
all the same. Deaths and evictions come from the record: a worker that died there is ended here. The
first difference stops everyone, with a sentence. Knows no tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from paceline.encounters import Differs, Encounter, Failure, Meeting
from paceline.events import Fact, Join, Leave, Order, Release, Save, Start, Tick, Update
from paceline.recorder import Recorder
from paceline.replay.differences import Difference, difference, difference_in_orders, kind
from paceline.replay.record import SERVER_FILE, Entry
from paceline.replay.waiting import WaitingRoom
from paceline.server.members import Member
from paceline.server.turns import Host
from paceline.transport import messages
from paceline.transport.messages import Stop
from paceline.transport.witness_messages import Vouch, Witness

_WHENEVER = (messages.Open, messages.Gather, Witness, Vouch)
_TO_SAVE = (*_WHENEVER, messages.HandIn, messages.TakeCut)


class RecordedOrder:
    """The turns of a replay of ``record``.

    ``until``: stop when this version is made and those who made it have saved it. ``end_process(pid)``:
    ends a worker that died at this point of the record.
    """

    def __init__(
        self,
        record: Iterator[Entry],
        *,
        until: int | None,
        recorder: Recorder,
        end_process: Callable[[int], None],
        clock_s: Callable[[], float],
    ) -> None:
        self._record = record
        self._until = until
        self._recorder = recorder
        self._end_process = end_process
        self._clock_s = clock_s
        self._host: Host
        self._next = next(record, None)
        self._due: Entry | None = None
        self._waiting = WaitingRoom()
        self._ended: set[int] = set()
        self._clocks: dict[int, int] = {}
        self._members: set[int] = set()
        self._makers: set[int] | None = None
        self._busy = False
        self._served = 0
        self._served_when_stuck = -1

    # ------------------------------------------------------------------------- what is held back

    def attend(self, host: Host) -> None:
        self._host = host

    def lets_in(self, member: Member, request: Any) -> bool:
        if self._halted or member.state != "live":
            return True
        self._waiting.hold(member, request)
        self._go_on()
        return False

    def lets_go(self, member: Member) -> bool:
        if self._halted:
            return True
        self._waiting.lost[member.rank] = member
        self._go_on()
        return False

    def may_meet(self) -> bool:
        entry = self._next
        return self._makers is None and entry is not None and isinstance(entry.what, Meeting)

    def awaited(self, live: set[int]) -> set[int]:
        return live if self._makers is None else live & self._makers

    def look_around(self) -> None:
        """Nothing new between two looks, and everybody waits: what is to come next never will."""
        self._go_on()
        stuck = self._host.all_came and self._waiting.everybody_waits(self._host.group)
        if self._halted or not stuck:
            self._served_when_stuck = -1
        elif self._served_when_stuck == self._served:
            self._say_stuck()
        else:
            self._served_when_stuck = self._served

    def _go_on(self) -> None:
        """Serve whose turn it is, as long as it is somebody's."""
        if self._busy:
            return
        self._busy = True
        try:
            while not self._halted and self._turn():
                self._served += 1
            if self._halted:
                self._release()
        finally:
            self._busy = False

    def _release(self) -> None:
        """Everybody was stopped: whoever was not told so, having brought it about, is answered."""
        while (held := self._waiting.any_of((messages.Message,))) is not None:
            if held[0].owed:
                self._host.serve(*held)

    def _turn(self) -> bool:
        """Serve one of those held back, if that is possible."""
        held = self._waiting.any_of(_WHENEVER if self._makers is None else _TO_SAVE)
        if held is not None:
            self._host.serve(*held)
            return True
        if self._makers is not None:
            self._finish(self._makers)
            return False
        return self._next is not None and self._follow(self._next)

    def _follow(self, entry: Entry) -> bool:
        """Serve what ``entry`` says, if it is there."""
        what = entry.what
        if isinstance(what, Join):  # brought about by the last Open
            return False
        if isinstance(what, Tick):
            self._host.wake()
        elif isinstance(what, Meeting):
            self._host.meet()
        elif isinstance(what, Leave) and what.reason == "dead":
            self._let_die(what.rank)
        elif isinstance(what, Failure) and (failure := self._waiting.failure(what.rank)):
            self._host.serve(*failure)
        elif held := self._waiting.for_entry(what):
            self._host.serve(*held)
        elif now := self._waiting.instead(what.rank):
            self._differ(entry, now=now)
        return self._next is not entry

    def _let_die(self, rank: int) -> None:
        """``rank`` died at this point. Its process is ended if it has not ended itself."""
        if (member := self._waiting.bury(rank)) is not None:
            self._host.bury(member)
        elif rank not in self._ended:
            self._ended.add(rank)
            with suppress(ProcessLookupError):  # it ended itself a moment ago, and will be missed
                self._end_process(self._host.group.members[rank].pid)

    # ----------------------------------------------------------------------- what is being served

    def note(self, encounter: Encounter) -> None:
        entry = self._next
        if self._makers is None and entry is not None:
            if (found := difference(entry.what, encounter)) is not None:
                self._differ_in(entry, found)
                return
            self._take(entry)
        self._recorder.write(encounter)

    def facts(self, fact: Fact) -> Iterable[Fact]:
        entry = self._next
        if self._makers is not None:
            return (fact,) if isinstance(fact, Save) else ()
        if isinstance(fact, Tick) and (fact.rank is not None or not _is_alarm(entry)):
            return ()
        if entry is None:
            return ()
        signs = self._signs_of_life(entry) if isinstance(fact, Tick) else []
        if (found := difference(entry.what, fact)) is not None:
            self._differ_in(entry, found)
            return ()
        self._take(entry)
        return self._with(entry, signs)

    def _with(self, entry: Entry, signs: Sequence[Fact]) -> Iterator[Fact]:
        yield from signs
        self._due = entry
        yield entry.what

    def ordered(self, orders: Sequence[Order]) -> None:
        entry, self._due = self._due, None
        if entry is None:
            return
        if isinstance(entry.what, Join):
            self._members.add(entry.what.rank)
        for order in orders:
            self._heed(order)
        found = difference_in_orders(entry.orders, orders, torn=entry.last)
        if found is not None:
            self._differ_in(entry, found)

    def _heed(self, order: Order) -> None:
        if isinstance(order, Start):
            self._clocks[order.rank] = order.clock
        elif isinstance(order, Release):
            self._members.discard(order.rank)
        elif isinstance(order, Update) and order.version == self._until:
            self._makers = set(order.ranks)

    def _signs_of_life(self, entry: Entry) -> list[Fact]:
        """Everybody but those who were then evicted had been heard: heartbeats are not on record."""
        evicted = {order.rank for order in entry.orders if isinstance(order, Release)}
        time_s = entry.what.time_s
        return [Tick(time_s=time_s, rank=rank) for rank in sorted(self._members - evicted)]

    def _take(self, entry: Entry) -> None:
        assert entry is self._next
        self._next = next(self._record, None)

    # ------------------------------------------------------------------------------- the end

    @property
    def _halted(self) -> bool:
        return self._host.group.halted is not None

    def _finish(self, makers: set[int]) -> None:
        """The version asked for is made: stop once those who made it have saved it."""
        live = {member.rank for member in self._host.group.live()} - self._waiting.lost.keys()
        if all(self._waiting.asks(rank) for rank in makers & live):
            self._stop(f"version {self._until} is made")

    def _say_stuck(self) -> None:
        entry = self._next
        if self._makers is not None:
            self._stop(f"version {self._until} is made")
        elif entry is None:
            self._stop("the record ends here")
        else:
            member = self._host.group.members.get(_rank(entry))
            owed = "" if member is None else f": it waits with {member.owed}"
            self._differ(entry, now=f"nothing of the kind{owed}")

    def _differ(self, entry: Entry, *, now: str) -> None:
        recorded = kind(entry.what)
        self._differ_in(entry, Difference(field="what it did", recorded=recorded, now=now))

    def _differ_in(self, entry: Entry, found: Difference) -> None:
        rank = _rank(entry)
        differs = Differs(
            time_s=self._clock_s(), file=SERVER_FILE, line=entry.line, rank=rank,
            clock=self._clocks.get(rank, -1), field=found.field, recorded=found.recorded, now=found.now,
        )  # fmt: skip
        self._recorder.write(differs)
        self._stop(f"the replay differs from the record: {differs}")

    def _stop(self, text: str) -> None:
        self._host.group.halt(Stop(kind="shutdown", rank=-1, text=text))


def _is_alarm(entry: Entry | None) -> bool:
    """Whether ``entry`` is a time that came, at which somebody was overdue."""
    return entry is not None and isinstance(entry.what, Tick)


def _rank(entry: Entry) -> int:
    """Whom it is about; -1: nobody in particular."""
    rank = getattr(entry.what, "rank", None)
    return -1 if rank is None else int(rank)
