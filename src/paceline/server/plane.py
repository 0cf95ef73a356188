"""The server plane: requests of workers become facts for the policy, its orders become deeds.

Facts and orders are recorded in the coordinator's serial order. Heartbeats and deadlines are not,
unless they decided something: a replay takes evictions from their ``Release``. The orders of one
fact are carried out, in order, before the next fact is fed; nothing here decides.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from typing import Any, Literal

import msgspec
import torch

from paceline import events
from paceline.compression import parse_compression
from paceline.encounters import Look
from paceline.gradients.codecs.codec import ParcelError
from paceline.gradients.codecs.packing import Unpacker
from paceline.gradients.layout import FlatLayout
from paceline.gradients.norm_limit import norm_limit
from paceline.gradients.precision.layouts import gradients_of
from paceline.gradients.precision.loss_scale import LossScale
from paceline.policy import Coordinator
from paceline.recorder import Recorder
from paceline.server.arrivals import Arrivals
from paceline.server.building import balance, build_store
from paceline.server.capacity import CallAt, Capacity
from paceline.server.circles import Circles
from paceline.server.connection import log
from paceline.server.deeds import Deeds
from paceline.server.far_shards import FarShards
from paceline.server.judging import Judge
from paceline.server.loop import Loop
from paceline.server.members import Group, Member
from paceline.server.opening import check_same, gradients_from, is_far, layout_for, unpacker_for
from paceline.server.pulls import Pulls
from paceline.server.scales import Scales
from paceline.server.seats import BROKEN, Seat
from paceline.server.store import Store
from paceline.server.turns import Turns
from paceline.strategies import is_joint, needs_everyone, parse_strategy
from paceline.transport import messages
from paceline.transport.framing import FrameError
from paceline.transport.messages import Hello, Open, Stop
from paceline.transport.shard_messages import Enter
from paceline.transport.witness_messages import Vouch, Vouched

_LOST = {"departed": "left before the end", "dead": "died"}


class ServerPlane:
    """The policy's driver in one run. ``started``: all workers have opened. ``call_at``: plans what an
    emulated server is busy with; None: by the ``loop``. ``far``: the shards in other processes, if any."""

    def __init__(
        self,
        *,
        hello: Hello,
        group: Group,
        loop: Loop,
        recorder: Recorder,
        turns: Turns,
        call_at: CallAt | None = None,
        far: FarShards | None = None,
    ) -> None:
        self.started = False
        self._call_at = call_at or loop.call_at
        self._hello = hello
        self._group = group
        self._loop = loop
        self._recorder = recorder
        self._turns = turns
        self._openings: dict[int, tuple[Member, Open]] = {}
        self._seats: dict[int, Seat] = {}
        self._coordinator: Coordinator
        self._circles: Circles
        self._deeds: Deeds
        self._judge: Judge
        self._store: Store
        self._pulled: Pulls
        self._far = far
        self._arrivals = Arrivals(0 if far is None else far.count)
        if far is not None:
            far.on_whole, far.on_came = self._open_all, self._arrivals.came
            far.patience_s = hello.evict_after_s
        self._capacity: Capacity | None = None
        self._unpacker: Unpacker | None = None
        self._requests: dict[type, Callable[[Seat, Any], None]] = {
            messages.OpenPass: self._open_pass,
            messages.Ready: self._ready,
            messages.Push: self._pushed,
            messages.Read: self._read,
            messages.Fetch: self._fetch,
            Vouch: self._vouch,
            messages.TakeCut: self._cut,
            Enter: self._enter,
        }

    # ------------------------------------------------------------------------------- the hub's

    def handle(self, member: Member, request: Any) -> None:
        """A request came from ``member``; its region is the server's until the reply."""
        if isinstance(request, Open):
            self._open(member, request)
        elif (seat := self._seats.get(member.rank)) is None:
            raise FrameError(f"{type(request).__name__} before Open")
        else:
            seat.asked_s = self._now_s()
            self._requests[type(request)](seat, request)

    def filled(self, member: Member, filled: messages.Filled) -> None:
        """Some of ``member``'s buckets are full."""
        if (seat := self._seats.get(member.rank)) is not None:
            seat.filled = filled.buckets
            self._deeds.sum_ahead()

    def heard(self, member: Member) -> None:
        """``member`` is alive."""
        if self._circles.heard(member.rank):
            leader = self._circles.leader_of(member.rank)
            self._feed(events.Tick(time_s=self._now_s(), rank=leader))

    def leave(self, member: Member, reason: Literal["finished", "departed", "dead"]) -> None:
        """``member``, whose state says so already, takes part no longer."""
        self._arrivals.forget(member.rank)
        leader = self._circles.leader_of(member.rank)
        if reason == "dead" and (leader != member.rank or leader not in self._coordinator.members):
            self._group.note("died", member.rank, f"{member} died")  # the policy will not say it
        if reason != "finished" and leader in self._coordinator.members:
            self._vacate(self._circles.follow(member.rank, _LOST[reason]))
        if reason != "finished" or leader == member.rank:
            self._feed(events.Leave(time_s=self._now_s(), rank=leader, reason=reason))
        self._deeds.vacate(member.rank)
        if not any(True for _ in self._group.live()):
            self._judge.sum_up(self._deeds.late)

    def _vacate(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._deeds.vacate(rank)

    def close(self) -> None:
        """Unmap the regions, let go of the versions, end the threads."""
        for seat in self._seats.values():
            seat.mapped.region.close()
        self._seats.clear()
        if self.started:
            self._deeds.close()

    # -------------------------------------------------------------------------------- opening

    def _open(self, member: Member, opening: Open) -> None:
        if self.started or member.rank in self._openings:
            raise FrameError("a second Open")
        self._openings[member.rank] = (member, opening)
        self._open_all()

    def _open_all(self) -> None:
        """As soon as all workers, and all shards, are there."""
        if self.started or len(self._openings) < self._hello.world_size:
            return
        if self._far is not None and not self._far.whole:
            return
        try:
            self._set_up()
        except Exception as error:
            log(f"cannot open the server plane:\n{traceback.format_exc()}")
            text = f"the server plane cannot be opened: {error}"
            self._group.halt(Stop(kind="refused", rank=-1, text=text))
        else:
            self._begin()

    def _set_up(self) -> None:
        _, first = self._openings[0]
        torch.set_num_threads(1)  # the shard has threads of its own, and bits depend on this number
        layout = layout_for(first)
        self._seat_all(first, layout)
        strategy = parse_strategy(first.strategy)
        self._circles = Circles(
            first.groups, world_size=self._hello.world_size, members=self._group,
            clock_s=self._loop.clock_s,
        )  # fmt: skip
        self._coordinator = Coordinator(
            strategy=strategy,
            world_size=len(self._circles.leaders),
            evict_after_s=self._hello.evict_after_s,
            version=first.version,
            progress=first.progress,
        )
        scales = Scales(
            LossScale(value=first.scale, patience=first.scale_patience), joint=is_joint(strategy)
        )
        self._judge = Judge(self._group, self._recorder, dynamic=scales.dynamic)
        self._unpacker = unpacker_for(first, gradients_of(layout))
        self._store = build_store(first, layout, self._seats[0].mapped.region.memory, self._far)
        if said := balance(self._store, self._far, layout):
            self._group.note("info", -1, said)
        self._pulled = self._pulls(layout)
        if not self._store.divided:  # else each line carries once its worker has entered
            for seat in self._seats.values():
                self._carry(seat)
        if first.serving_s > 0:
            self._capacity = Capacity(
                first.serving_s, clock_s=self._loop.clock_s, call_at=self._call_at
            )
        self._deeds = Deeds(
            coordinator=self._coordinator,
            together=needs_everyone(strategy),
            pull=self._pull,
            store=self._store,
            limit=norm_limit(first.clip_norm, first.limit),
            seats=self._seats,
            group=self._group,
            loop=self._loop,
            wake=self.wake,
            scales=scales,
            pulls=self._pulled,
        )

    def _seat_all(self, first: Open, layout: FlatLayout) -> None:
        """Raises what :func:`check_same` does."""
        for rank, (member, opening) in sorted(self._openings.items()):
            check_same(first, opening, rank)
            mapped = gradients_from(member, opening, gradients_of(layout))
            self._seats[rank] = Seat(member=member, mapped=mapped)

    def _pulls(self, layout: FlatLayout) -> Pulls:
        compression = parse_compression(self._openings[0][1].compress or None)
        leaders = self._circles.leaders
        return Pulls(
            self._store, compression=None if compression is None else compression.of_pulls(),
            layout=layout, far=[rank for rank in leaders if is_far(*self._openings[rank])],
            workers=len(leaders), clock_s=self._loop.clock_s,
        )  # fmt: skip

    def _carry(self, seat: Seat) -> None:
        assert seat.member.data is not None
        self._store.carry(seat.member.data, seat.mapped, self._pulled.stored)

    def _enter(self, seat: Seat, _request: Enter) -> None:
        self._carry(seat)
        self._deeds.entered(seat)

    def _begin(self) -> None:
        self._openings.clear()
        self.started = True
        for rank in self._circles.leaders:
            self._feed(events.Join(time_s=self._now_s(), rank=rank))
        for rank, seat in self._seats.items():
            clock = self._coordinator.clock(self._circles.leader_of(rank))
            self._deeds.opened(seat, clock)

    # -------------------------------------------------------------------------- requests: facts

    def _open_pass(self, seat: Seat, wish: messages.OpenPass) -> None:
        self._request(seat, wish)
        self._deeds.leased(seat)

    def _request(self, seat: Seat, wish: messages.OpenPass) -> None:
        seat.wish = wish
        self._feed(
            events.Request(
                time_s=seat.asked_s, rank=seat.member.rank, pass_id=wish.pass_id, total=wish.total,
                window=wish.window, depth=wish.depth, weight=wish.weight, split=wish.split,
            )
        )  # fmt: skip

    def _ready(self, seat: Seat, _request: messages.Ready) -> None:
        self._deeds.take_back(seat)
        self._pull(seat.member.rank)

    def _pull(self, rank: int) -> None:
        self._feed(events.Pull(time_s=self._now_s(), rank=rank))

    def _pushed(self, seat: Seat, push: messages.Push) -> None:
        if self._store.divided:
            self._arrivals.pushed(seat.member.rank, partial(self._push_if_seated, seat, push))
        elif self._capacity is None:
            self._push(seat, push)
        else:
            self._capacity.queue(partial(self._push_if_seated, seat, push))

    def _push_if_seated(self, seat: Seat, push: messages.Push) -> None:
        """Whoever dies while its push waits for an emulated server, or a shard, had not sent all of it."""
        if self._seats.get(seat.member.rank) is seat and seat.member.state == "live":
            self._push(seat, push)

    def _push(self, seat: Seat, push: messages.Push) -> None:
        self._deeds.check(push)
        self._unpack(seat, push)
        self._deeds.take_back(seat)
        seat.push = push
        if push.total is not None and seat.wish is not None:
            self._request(seat, msgspec.structs.replace(seat.wish, total=push.total))
        broken = push.weight == 0 and seat.filled > 0  # part of it may be in the sum already
        self._judge.hear(seat, BROKEN if broken else push.bad)
        self._feed(
            events.Push(
                time_s=seat.asked_s, rank=seat.member.rank,
                weight=push.unit if broken else push.weight, unit=push.unit,
                finite=not push.bad and not broken, stop=push.stop,
                gradient_norm=push.norm if isfinite(push.norm) else None,
            )
        )  # fmt: skip

    def _unpack(self, seat: Seat, push: messages.Push) -> None:
        """Put what was encoded into the worker's region, which is the server's now."""
        if push.parcel is None:
            return
        if self._unpacker is None:
            raise FrameError("a compressed Push where nothing was to be compressed")
        try:
            self._unpacker.unpack(push.parcel, seat.mapped.gradients.views, push.used)
        except ParcelError as error:
            raise FrameError(f"a compressed Push that cannot be read: {error}") from error

    def _read(self, seat: Seat, _request: messages.Read) -> None:
        self._look(seat, "parameters")
        self._deeds.latest(seat)

    def _fetch(self, seat: Seat, _request: messages.Fetch) -> None:
        self._look(seat, "optimizer")
        self._deeds.state(seat)

    def _look(self, seat: Seat, what: Literal["parameters", "optimizer"]) -> None:
        version = self._coordinator.version
        self._turns.note(
            Look(time_s=self._now_s(), rank=seat.member.rank, version=version, what=what)
        )

    def _vouch(self, seat: Seat, _request: Vouch) -> None:
        rank = seat.member.rank
        self._group.reply(rank, Vouched(facts=self._store.facts(rank)))

    def _cut(self, seat: Seat, _request: messages.TakeCut) -> None:
        self._feed(events.Save(time_s=self._now_s(), rank=seat.member.rank))
        self._recorder.flush()  # what led to a checkpoint is on record whatever happens next

    # ------------------------------------------------------------------------------- the policy

    def _feed(self, fact: events.Fact) -> None:
        for one in self._turns.facts(fact):
            self._decide(one)

    def _decide(self, fact: events.Fact) -> None:
        if self._group.halted is not None:
            return
        orders = list(self._coordinator.feed(fact))
        decided = [order for order in orders if not isinstance(order, events.WakeAt)]
        if decided or not isinstance(fact, events.Tick):
            self._recorder.write(fact)
        for order in decided:
            self._recorder.write(order)
            if isinstance(order, events.Release):
                self._vacate(self._circles.silent(order.rank))
        self._turns.ordered(decided)
        self._deeds.carry_out([self._circles.named(order) for order in orders])

    def wake(self) -> None:
        """A time came that the policy had asked for."""
        self._feed(events.Tick(time_s=self._now_s()))

    def _now_s(self) -> float:
        """Rounded as it is recorded, so that a replay is fed the very same number."""
        return round(self._loop.clock_s(), 6)
