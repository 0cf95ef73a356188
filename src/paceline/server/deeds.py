"""Carries out the policy's orders: gradients applied, versions given to read, workers answered.

If a joint gradient overflows although every push in it was finite, the step is skipped and its
pushes are answered as not applied. The version counts it all the same: the policy, which never
sees payloads, had decided the update by then, and a replay will decide it again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from paceline import events
from paceline.gradients.norm_limit import NormLimit
from paceline.policy import Coordinator
from paceline.server.answers import Answers, Verdict, verdict_on
from paceline.server.joint import Part
from paceline.server.loop import Loop
from paceline.server.members import Group, NoticeKind
from paceline.server.progressing import Progressing
from paceline.server.pulls import Pulls
from paceline.server.scales import Scales
from paceline.server.seats import BROKEN, Seat
from paceline.server.shards import Update
from paceline.server.store import Store
from paceline.transport import messages
from paceline.transport.framing import FrameError
from paceline.transport.messages import Stop
from paceline.transport.shard_messages import Entered


class Deeds:
    """Does what the policy orders. ``together``: every round is of all workers, or of none.

    ``pull(rank)``: feeds the policy a Pull of ``rank``. ``wake()``: to be called at the times that
    it asks for. ``late``: each rank's pushes that came too late for their round.
    ``limit``: on the norm of each update's gradient.
    """

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        together: bool,
        pull: Callable[[int], None],
        store: Store,
        limit: NormLimit,
        seats: dict[int, Seat],
        group: Group,
        loop: Loop,
        wake: Callable[[], None],
        scales: Scales,
        pulls: Pulls,
    ) -> None:
        self._coordinator = coordinator
        self._store = store
        self._limit = limit
        self._seats = seats
        self._group = group
        self._loop = loop
        self._wake = wake
        self._scales = scales
        self.late: Counter[int] = Counter()
        self._progress = Progressing(coordinator, group, loop)
        self._bad = ""
        self._due: list[events.Update] = []
        self._together = together
        self._pulls = pulls
        self._answers = Answers(
            coordinator, store, group, self._reply, pull,
            at_once=together or store.divided, pulls=pulls,
        )  # fmt: skip
        self._deeds: dict[type, Callable[[Any], None]] = {
            events.Lease: self._end_pass,
            events.Start: self._start,
            events.Update: self._update,
            events.Drop: self._drop,
            events.Release: self._release,
            events.Halt: self._halt,
            events.WakeAt: self._wake_at,
            events.Cut: self._cut,
        }

    def carry_out(self, orders: Sequence[events.Order]) -> None:
        """Carry out the orders of one fact, in their order.

        Leases come first, so that they travel with whatever reply the same fact brings about. Updates
        are put off until it is quiet, or something depends on them: those of pushes that are waiting
        together go through memory together.
        """
        self._bad = self._bad_pushes()
        for order in orders:
            if isinstance(order, events.Lease):
                self._seats[order.rank].leases.extend(order.batches)
        for order in orders:
            if not isinstance(order, events.Update | events.WakeAt):
                self._apply_due()
            self._deeds[type(order)](order)
        self._answers.send()

    def check(self, push: messages.Push) -> None:
        """Raises FrameError for a push that does not fit the model."""
        if not self._store.fits(push.used, push.groups):
            raise FrameError("a Push that does not fit the model")

    # -------------------------------------------------------------- answers that need no order

    def opened(self, seat: Seat, clock: int) -> None:
        """The plane is open: every worker starts from the same parameters, at ``clock``."""
        rank = seat.member.rank
        opened = messages.Opened(
            version=self._coordinator.version, clock=clock,
            server_pid=os.getpid(), parameters_fd=self._pulls.exact(rank),
            owners=self._store.owners, shards=self._store.places,
        )  # fmt: skip
        self._group.reply(rank, opened)

    def entered(self, seat: Seat) -> None:
        """This process's part of what the worker was given when the plane opened."""
        rank = seat.member.rank
        entered = Entered(server_pid=os.getpid(), parameters_fd=self._store.held(rank))
        self._group.reply(rank, entered)

    def leased(self, seat: Seat) -> None:
        """What is leased to the worker so far."""
        leased = messages.Leased(batches=seat.take_leases(), last=False)
        self._group.reply(seat.member.rank, leased)

    def latest(self, seat: Seat) -> None:
        """The latest version, beside the one that the worker has."""
        self.catch_up()
        rank = seat.member.rank
        latest = messages.Latest(
            version=self._coordinator.version, parameters_fd=self._store.lend(rank)
        )
        self._reply(rank, latest)

    def take_back(self, seat: Seat) -> None:
        """The worker reads no version until it is answered."""
        self._store.take_back(seat.member.rank)

    def state(self, seat: Seat) -> None:
        """The optimizer's state."""
        self.catch_up()
        self._group.reply(seat.member.rank, messages.State(state=self._store.state()))

    def vacate(self, rank: int) -> None:
        """Unmap the region of a worker that is gone, unless a push in it is still to be decided."""
        self.catch_up()
        self._pulls.forget(rank)
        seat = self._seats.get(rank)
        if seat is not None and seat.push is None:
            del self._seats[rank]
            seat.mapped.region.close()
            self._store.vacate(rank)

    def sum_ahead(self) -> None:
        """Sum what every worker has filled, if the next update is sure to be theirs together."""
        seats = [self._seats[rank] for rank in sorted(self._seats)]
        filled = min(seat.filled for seat in seats)
        if filled and self._together:
            self._store.sum_ahead([seat.mapped.gradients for seat in seats], filled)

    def catch_up(self) -> None:
        """Apply the updates that were put off, and answer their workers."""
        self._apply_due()
        self._answers.send()

    def close(self) -> None:
        """Let go of the versions, end the threads."""
        self._pulls.close()
        self._store.close()

    # ---------------------------------------------------------------------------------- orders

    def _end_pass(self, order: events.Lease) -> None:
        if not order.last:
            return
        ended = messages.Ended(
            version=self._coordinator.version, clock=self._coordinator.clock(order.rank),
            progress=self._coordinator.progress,
            waited_s=self._loop.clock_s() - self._seats[order.rank].asked_s,
            parameters_fd=self._pulls.exact(order.rank),
        )  # fmt: skip
        self._reply(order.rank, ended)

    def _start(self, order: events.Start) -> None:
        seat, scale = self._seats[order.rank], self._scales.of(order.rank)
        self._answers.start(seat, order, scale, self._loop.clock_s())

    def _update(self, order: events.Update) -> None:
        for rank in order.ranks:
            self._take_groups(self._seats[rank])
        self._due.append(order)
        if self._together or self._limit.state is not None:  # the next one's limit depends on it
            self._apply_due()
        else:
            self._loop.when_quiet(self.catch_up)

    def _apply_due(self) -> None:
        if self._due:
            due, self._due = self._due, []
            self._apply(due)

    def _apply(self, orders: Sequence[events.Update]) -> None:
        started_s = self._loop.clock_s()
        updates = [self._as_ordered(order) for order in orders]
        outcomes = self._store.apply(updates, self._limit.now)
        applied_s = (self._loop.clock_s() - started_s) / len(orders)
        for order, outcome in zip(orders, outcomes, strict=True):
            verdict = verdict_on(order, outcome, started_s, applied_s)
            self._scales.decided(order.ranks, order.clocks[0], finite=outcome.applied)
            if outcome.applied:
                self._limit.feed(outcome.norm)
            for rank, lag in zip(order.ranks, order.lags, strict=True):
                self._decide(self._seats[rank], verdict, lag)
            self._progress.samples += order.weight
        self._progress.later()

    def _as_ordered(self, order: events.Update) -> Update:
        seats = [self._seats[rank] for rank in order.ranks]
        parts = [_part(seat) for seat in seats if seat.push and seat.push.weight > 0]
        rate = max((seat.push.rate for seat in seats if seat.push), default=1.0)  # they are equal
        return Update(parts=parts, divisor=order.divisor, lr_scale=order.lr_scale * rate)

    def _drop(self, order: events.Drop) -> None:
        seat = self._seats[order.rank]
        self._take_groups(seat)
        self._store.forget_sums()
        self.late[order.rank] += order.kind == "late"
        if order.kind == "non-finite" and seat.bad not in ("", BROKEN):
            self._scales.decided((order.rank,), order.clock, finite=False)
        named = f"{order.reason} ({self._bad})" if order.kind == "non-finite" else order.reason
        verdict = Verdict(
            applied=False,
            kind=order.kind,
            reason=named,
            version=self._coordinator.version,
            progress=self._coordinator.progress,
            started_s=self._loop.clock_s(),
        )
        self._decide(seat, verdict, 0)
        self._progress.later()

    def _release(self, order: events.Release) -> None:
        member = self._seats[order.rank].member
        where = f"at clock {order.clock}{_returned(order.returned)}"
        now_s = self._loop.clock_s()
        if member.state == "live":
            silent = f"was silent for {now_s - member.heard_s:.1f} s ({member.doing(now_s)})"
            self._group.evict(member, f"{member} {silent} and is evicted {where}")
        elif member.state == "dead":
            self._group.note("died", member.rank, f"{member} died {where}")
        elif order.returned:
            kind: NoticeKind = "left" if member.state == "left" else "info"  # with its group
            self._group.note(kind, member.rank, f"{member} left {where}")
        self.vacate(order.rank)

    def _halt(self, order: events.Halt) -> None:
        member = self._group.members[order.rank]
        text = f"{order.reason} ({member.place}, {member.doing(self._loop.clock_s())})"
        if member.state == "live":
            self._group.evict(member, text)
        self._group.halt(Stop(kind="peer-lost", rank=order.rank, text=text))

    def _wake_at(self, order: events.WakeAt) -> None:
        self._loop.call_at(order.time_s, self._wake)

    def _cut(self, order: events.Cut) -> None:
        taken = messages.CutTaken(
            version=order.version, progress=order.progress, ranks=list(order.ranks),
            clocks=list(order.clocks), left=list(order.left),
            parameters_fd=self._store.lend(order.rank), state=self._store.state(),
            limit=self._limit.state,
        )  # fmt: skip
        self._reply(order.rank, taken)

    # --------------------------------------------------------------------------------- details

    def _reply(self, rank: int, reply: messages.Message) -> None:
        self._store.bring(rank, reply)
        self._group.reply(rank, reply)

    def _decide(self, seat: Seat, verdict: Verdict, lag: int) -> None:
        seat.push, seat.filled = None, 0
        if seat.member.state != "live":
            self.vacate(seat.member.rank)
            return
        self._answers.decide(seat, verdict, lag)

    def _take_groups(self, seat: Seat) -> None:
        """Hyper-parameters hold from the push on that brought them, also if it is dropped."""
        if seat.push is not None and seat.push.groups is not None:
            self._apply_due()
            self._store.set_groups(seat.push.groups)

    def _bad_pushes(self) -> str:
        bad = [(rank, seat.bad) for rank, seat in self._seats.items() if seat.push]
        return ", ".join(f"rank {rank}: {name!r}" for rank, name in sorted(bad) if name)


def _part(seat: Seat) -> Part:
    assert seat.push is not None
    return Part(
        gradients=seat.mapped.gradients, used=seat.push.used, norm=seat.push.norm,
        rank=seat.member.rank,
    )  # fmt: skip


def _returned(batches: tuple[int, ...]) -> str:
    if not batches:
        return ""
    return f"; batches {', '.join(map(str, batches))} are handed out again"
