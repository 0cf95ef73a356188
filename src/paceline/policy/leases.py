"""Which batches a worker gets: ways to supply a pass, with the same six methods.

``Dealt``   whole rounds, one slot a member (sync, ssp:0): batch ``i`` of a round to slot ``i mod n``
``Shared``  the next batches to whoever needs some (backup, ssp:s, async)
``Own``     every worker has its own data (``split=False``)
``Stopped`` nobody any more

Supplies move batch numbers between queues and members' leases. They give no orders, and do not
know why a member needs batches or gave some back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from paceline.events import Left
from paceline.policy.members import Member

Grant = tuple[Member, tuple[int, ...]]


class Queue:
    """Batch numbers, in loader order, that nobody holds. ``total`` None: without end (yet)."""

    __slots__ = ("_next", "_returned", "total")

    def __init__(self) -> None:
        self.total: int | None = None
        self._next = 0
        self._returned: deque[int] = deque()

    @property
    def dry(self) -> bool:
        """Whether no batch is left."""
        return self.total is not None and self._next >= self.total and not self._returned

    @property
    def left(self) -> int | None:
        """How many batches are left; None: without end."""
        return None if self.total is None else self.total - self._next + len(self._returned)

    def take(self, count: int) -> list[int]:
        """The next ``count`` batches, or what is left of them; returned ones first."""
        back = self._returned
        batches = [back.popleft() for _ in range(min(count, len(back)))] if back else []
        stop = self._next + count - len(batches)
        if self.total is not None and stop > self.total:
            stop = self.total
        batches += range(self._next, stop)
        self._next = stop
        return batches

    def put_back(self, batches: Iterable[int]) -> None:
        """Batches taken earlier are to be taken again, before all others."""
        self._returned = deque(sorted([*batches, *self._returned]))

    def rest(self, owner: int, holders: Iterable[Member]) -> Left:
        """What nobody holds, and what ``holders`` hold undecided."""
        held = [batch for one in holders for batch in (*one.leases, *one.running)]
        returned = tuple(sorted([*held, *self._returned]))
        return Left(owner=owner, next=self._next, total=self.total, returned=returned)

    def amend(self, total: int) -> bool:
        """Batches ``total`` and later do not exist after all; whether that is news."""
        if self.total is not None and total >= self.total:
            return False
        self.total = total
        self._next = min(self._next, total)
        self._returned = deque(batch for batch in self._returned if batch < total)
        return True


class Supply(Protocol):
    """Where the batches of one pass come from; ``words`` say so."""

    words: str

    @property
    def dry(self) -> bool:
        """Whether nobody, present or to come, can get a batch."""

    def has_more(self, member: Member) -> bool:
        """Whether ``member`` can ask for further batches, if it takes part."""

    def learn(self, member: Member, total: int | None) -> bool:
        """``member`` says how many batches there are: the smallest number holds; if it is news."""

    def refill(self, members: Iterable[Member]) -> list[Grant]:
        """Lease to ``members`` what is now theirs to have; the grants, already in their leases."""

    def give_back(self, member: Member, batches: tuple[int, ...]) -> tuple[int, ...]:
        """``member`` gave up ``batches``, having broken off or gone: those others shall compute."""

    def left(self, holders: Iterable[Member]) -> tuple[Left, ...]:
        """The pass's undecided batches. ``holders``: whoever may hold some."""


class Shared:
    """One queue; every member is kept topped up to its depth, less near the end of the pass."""

    words = "on demand"

    def __init__(self, members: Mapping[int, Member]) -> None:
        self._queue = Queue()
        self._members = members

    @property
    def dry(self) -> bool:
        return self._queue.dry

    def has_more(self, member: Member) -> bool:
        return not self._queue.dry

    def learn(self, member: Member, total: int | None) -> bool:
        return _amend(self._queue, total, self._members.values())

    def refill(self, members: Iterable[Member]) -> list[Grant]:
        return [
            (member, batches)
            for member in members
            if (batches := _top_up(member, self._queue, self._allowance(member)))
        ]

    def give_back(self, member: Member, batches: tuple[int, ...]) -> tuple[int, ...]:
        self._queue.put_back(batches)
        return batches

    def left(self, holders: Iterable[Member]) -> tuple[Left, ...]:
        return (self._queue.rest(-1, holders),)

    def _allowance(self, member: Member) -> int:
        # A deep prefetch near the end would leave the last batches of all to one slow worker.
        left = self._queue.left
        if left is None:
            return member.depth
        fair = -(-left // (2 * len(self._members)))
        return min(member.depth, max(member.window, fair))


class Dealt:
    """One queue, dealt in whole rounds to the members that were there when the pass opened.

    The slot of one that broke off keeps its share, which nobody computes: so the others' shares
    do not depend on when it did. The slot of one that died is closed.
    """

    words = "dealt in whole rounds"

    def __init__(self, slots: Iterable[Member]) -> None:
        self._queue = Queue()
        self._slots = list(slots)

    @property
    def dry(self) -> bool:
        return self._queue.dry

    def has_more(self, member: Member) -> bool:
        return False  # whoever has no share of the rounds dealt so far is not waited for

    def learn(self, member: Member, total: int | None) -> bool:
        return _amend(self._queue, total, self._slots)

    def refill(self, members: Iterable[Member]) -> list[Grant]:
        granted: dict[Member, list[int]] = {}
        while self._have_room() and not self._queue.dry:
            self._deal(granted)
        return [(member, tuple(batches)) for member, batches in granted.items()]

    def give_back(self, member: Member, batches: tuple[int, ...]) -> tuple[int, ...]:
        if member.sits_out:
            return ()
        self._slots.remove(member)
        self._queue.put_back(batches)
        return batches

    def left(self, holders: Iterable[Member]) -> tuple[Left, ...]:
        return (self._queue.rest(-1, holders),)

    def _have_room(self) -> bool:
        playing = [slot for slot in self._slots if not slot.sits_out]
        return bool(playing) and all(slot.undecided + slot.window <= slot.depth for slot in playing)

    def _deal(self, granted: dict[Member, list[int]]) -> None:
        slots = self._slots
        window = max(slot.window for slot in slots)
        batches = self._queue.take(len(slots) * window)
        for place, slot in enumerate(slots):
            share = batches[place :: len(slots)]
            if share and not slot.sits_out:
                slot.leases += share
                granted.setdefault(slot, []).extend(share)


class Own:
    """A queue a member, from its first Request of the pass on; what it gives up is nobody's."""

    words = "the worker's own data"
    dry = False

    def __init__(self) -> None:
        self._queues: dict[Member, Queue] = {}

    def has_more(self, member: Member) -> bool:
        return member not in self._queues or not self._queues[member].dry

    def learn(self, member: Member, total: int | None) -> bool:
        return _amend(self._queues.setdefault(member, Queue()), total, [member])

    def refill(self, members: Iterable[Member]) -> list[Grant]:
        return [
            (member, batches)
            for member in members
            if member in self._queues
            and (batches := _top_up(member, self._queues[member], member.depth))
        ]

    def give_back(self, member: Member, batches: tuple[int, ...]) -> tuple[int, ...]:
        return ()

    def left(self, holders: Iterable[Member]) -> tuple[Left, ...]:
        return tuple(queue.rest(one.rank, [one]) for one, queue in self._queues.items())


class Stopped:
    """What is left of a supply whose pass was stopped: nothing, but what it learns holds."""

    words = "the pass was stopped"
    dry = True

    def __init__(self, supply: Supply) -> None:
        self._supply = supply

    def has_more(self, member: Member) -> bool:
        return False

    def learn(self, member: Member, total: int | None) -> bool:
        return self._supply.learn(member, total)

    def refill(self, members: Iterable[Member]) -> list[Grant]:
        return []

    def give_back(self, member: Member, batches: tuple[int, ...]) -> tuple[int, ...]:
        return ()

    def left(self, holders: Iterable[Member]) -> tuple[Left, ...]:
        return tuple(_without_rest(one) for one in self._supply.left(holders))


def _without_rest(left: Left) -> Left:
    """Only what is held."""
    end = left.next if left.total is None else left.total
    return replace(left, next=end, total=end)


def _top_up(member: Member, queue: Queue, allowance: int) -> tuple[int, ...]:
    room = allowance - len(member.leases) - len(member.running)
    if room <= 0:
        return ()
    batches = tuple(queue.take(room))
    member.leases += batches
    return batches


def _amend(queue: Queue, total: int | None, holders: Iterable[Member]) -> bool:
    if total is None or not queue.amend(total):
        return False
    for member in holders:
        member.forget_from(total)
    return True
