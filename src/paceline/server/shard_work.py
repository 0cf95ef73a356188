"""What a shard in a process of its own does: the server's orders, and what its workers bring and take.

It is told everything and decides nothing. Knows lines (somebody to send to), and not what they are made of.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from paceline.gradients.layout import FlatLayout
from paceline.gradients.parts import runs_of
from paceline.gradients.precision.layouts import gradients_of
from paceline.server.connection import Line, log
from paceline.server.holding import Holding
from paceline.server.joint import Gradients, Part
from paceline.server.opening import (
    Mapped,
    build_shard,
    bytes_of,
    carry_frames,
    initial_values,
    layout_for,
)
from paceline.server.parcels import Stored
from paceline.server.shards import Update
from paceline.server.versions import Versions
from paceline.transport.framing import FrameError
from paceline.transport.messages import Message, Open, State
from paceline.transport.shard_messages import (
    Apply,
    Came,
    Done,
    Enter,
    Entered,
    GetFacts,
    GetState,
    Give,
    Given,
    JoinUp,
    Laid,
    Lost,
    Move,
    Norms,
    SetGroups,
    SetUp,
    Show,
    Squares,
    Sum,
    TakeBack,
    Vacate,
)
from paceline.transport.shared_memory import Region
from paceline.transport.witness_messages import Vouched


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """A worker that has entered."""

    line: Line
    mapped: Mapped


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """What is trained, and what of it is here."""

    order: SetUp
    layout: FlatLayout
    holding: Holding


class ShardWork:
    """``report(message)``: says something to the server that it did not ask for."""

    def __init__(self, report: Callable[[Message], None]) -> None:
        self._report = report
        self._generation: Generation | None = None
        self._seats: dict[int, Seat] = {}
        self._orders: dict[type, Callable[[Any], Message | None]] = {
            SetUp: self._set_up,
            Give: self._give,
            Show: self._show,
            TakeBack: lambda order: self._holding.versions.take_back(order.rank),
            Vacate: self._vacate,
            SetGroups: lambda order: self._holding.shard.set_groups(order.groups),
            Apply: self._apply,
            JoinUp: self._join,
            Move: lambda order: self._holding.step(order.norm, order.clip_norm),
            GetState: lambda _: State(state=self._holding.shard.state()),
            GetFacts: lambda order: Vouched(facts=self._holding.vouching.facts(order.rank)),
        }

    def obey(self, order: object) -> Message | None:
        """Carry out an order of the server's; the reply, if it has one."""
        if type(order) not in self._orders:
            raise FrameError(f"{type(order).__name__} is no order")
        return self._orders[type(order)](order)

    def objection(self, rank: int) -> str:
        """Why a worker of this ``rank`` cannot take part now, "" if it can."""
        if self._generation is None:
            return "nothing is trained here yet"
        return f"rank {rank} is here already" if rank in self._seats else ""

    def hear(self, line: Line, rank: int, pid: int, message: object) -> None:
        """Something that the worker of ``rank``, process ``pid``, said. Raises FrameError."""
        if isinstance(message, Enter) and rank not in self._seats:
            self._enter(line, rank, pid, message)
        elif isinstance(message, Laid) and rank in self._seats:
            self._report(Came(rank=rank, generation=self._now.order.generation))
        else:
            raise FrameError(f"unexpected {type(message).__name__}")

    def lost(self, line: Line, rank: int) -> None:
        """The connection of ``rank`` ended; whether the worker is gone is for the server to say."""
        seat = self._seats.get(rank)
        if seat is not None and seat.line is line:
            self._report(Lost(rank=rank, generation=self._now.order.generation))

    def close(self) -> None:
        """Let go of everything."""
        for rank in list(self._seats):
            self._leave(rank)
        if self._generation is not None:
            self._generation.holding.close()
        self._generation = None

    # ---------------------------------------------------------------------------------- orders

    def _set_up(self, order: SetUp) -> Done:
        self.close()
        torch.set_num_threads(1)  # as on the server: bits depend on this number
        try:
            self._generation = _generation(order)
        except Exception as error:
            log(f"cannot open shard {order.number}:\n{traceback.format_exc()}")
            return Done(trouble=str(error) or type(error).__name__)
        return Done()

    def _give(self, order: Give) -> None:
        versions = self._holding.versions
        (versions.lend if order.glance else versions.give)(order.rank)

    def _show(self, order: Show) -> None:
        seat = self._seats.get(order.rank)
        if seat is not None:
            versions = self._holding.versions
            buffer = (versions.lent if order.glance else versions.held)(order.rank)
            seat.line.send(Given(parameters_fd=buffer.fd, glance=order.glance))

    def _vacate(self, order: Vacate) -> None:
        self._leave(order.rank)

    def _apply(self, order: Apply) -> Squares:
        return Squares(values=self._holding.apply_at_once([self._update(s) for s in order.sums]))

    def _join(self, order: JoinUp) -> Norms:
        values, finite = self._holding.join(self._update(order.sum))
        return Norms(values=values, finite=finite)

    # --------------------------------------------------------------------------------- details

    @property
    def _now(self) -> Generation:
        if self._generation is None:
            raise FrameError("an order before SetUp")
        return self._generation

    @property
    def _holding(self) -> Holding:
        return self._now.holding

    def _update(self, sum_: Sum) -> Update:
        parts = [
            Part(gradients=self._seats[one.rank].mapped.gradients, used=one.used, norm=one.norm)
            for one in sum_.pushes
        ]
        return Update(parts=parts, divisor=sum_.divisor, lr_scale=sum_.lr_scale)

    def _enter(self, line: Line, rank: int, pid: int, message: Enter) -> None:
        now = self._now
        wide = gradients_of(now.layout)
        if line.remote:
            region = Region.create(wide.total_bytes)
        else:
            region = Region.open(pid, message.region_fd, wide.total_bytes)
        mapped = Mapped(region=region, gradients=Gradients(wide, region.memory))
        versions = now.holding.versions
        carry_frames(
            line, mapped, partial(_stored, versions), bucket_bytes=now.order.opening.bucket_bytes,
            layout=now.layout, number=now.order.number, owners=now.order.owners,
        )  # fmt: skip
        self._seats[rank] = Seat(line=line, mapped=mapped)
        line.send(Entered(server_pid=os.getpid(), parameters_fd=versions.held(rank).fd))

    def _leave(self, rank: int) -> None:
        seat = self._seats.pop(rank, None)
        if seat is not None:
            seat.line.close()  # before anything that it is being sent is written to
            seat.mapped.region.close()


def _stored(versions: Versions, fd: int) -> Stored:
    buffer = versions.named(fd)
    return Stored(name=(fd, buffer.written), memory=bytes_of(buffer.pieces.memory))


def _generation(order: SetUp) -> Generation:
    layout = layout_for(order.opening)
    wide = gradients_of(layout)
    memory = _laid_out(order.opening, wide, order.owners, order.number)
    holding = Holding(
        layout, build_shard(order.opening, wide), Versions(initial_values(layout, memory)),
        number=order.number, owners=order.owners,
    )  # fmt: skip
    return Generation(order=order, layout=layout, holding=holding)


def initial_of(
    memory: torch.Tensor, layout: FlatLayout, owners: Sequence[int], number: int
) -> bytes:
    """The bytes that shard ``number`` has of ``memory``, one after the other."""
    runs = runs_of(layout, owners, number)
    return b"".join(memory[one.start_bytes : one.stop_bytes].numpy().tobytes() for one in runs)


def _laid_out(
    opening: Open, layout: FlatLayout, owners: Sequence[int], number: int
) -> torch.Tensor:
    """What :func:`initial_of` was given, zeros where other shards' bytes are."""
    memory = torch.zeros(layout.total_bytes, dtype=torch.uint8)
    given, at = bytearray(opening.initial or b""), 0
    for one in runs_of(layout, owners, number):
        length = one.stop_bytes - one.start_bytes
        memory[one.start_bytes : one.stop_bytes] = torch.frombuffer(
            given, dtype=torch.uint8, count=length, offset=at
        )
        at += length
    return memory
