"""Sums a window's gradients over all ranks compressed: the ballot first, then nothing if it says so.

Stands where :class:`paceline.worker.reducer.Reducer` does. As encoding needs whole gradients and what
was withheld of them, nothing is sent during backward; and as every rank has read every vote before
anything is encoded, a gradient that is not finite reaches neither a wire nor a residual.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from paceline.compression import Compression, WarmUpShare
from paceline.gradients.buffer import GradientBuffer
from paceline.gradients.codecs.choosing import Codecs
from paceline.gradients.codecs.feedback import feedback_for
from paceline.gradients.codecs.joining import Collectives, Joiner, Window
from paceline.gradients.codecs.packing import Moment
from paceline.gradients.layout import FlatLayout
from paceline.gradients.norms import sum_of_squares, sum_of_values
from paceline.worker.compressing import State
from paceline.worker.compression_account import Account
from paceline.worker.plane import BucketTimes
from paceline.worker.reducer import BUCKET_BYTES, Reduced, aligned_zeros
from paceline.worker.vote import tally

PROBE_BYTES, PROBES = 4 * 2**20, 3
"""Summed so often at the start, to know what the wire carries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """This rank's window. ``computed``: it has gradients; ``unit``: as in a Contribution."""

    computed: bool
    unit: float
    turn: int
    progress: int
    window: int


class Group(Collectives, Protocol):
    """:class:`paceline.transport.collective.Group`, or what stands in for it."""

    device: torch.device


class CompressedReducer:
    """The gradient memory of ``parameters`` and its compressed sum over ``group``.

    Every rank calls :meth:`send`, :meth:`finish` and :meth:`settle` once each window. ``kept``: what a
    checkpoint has for this rank; ``clock_s``: monotonic.
    """

    def __init__(
        self,
        group: Group,
        layout: FlatLayout,
        parameters: Sequence[torch.nn.Parameter],
        compression: Compression,
        *,
        kept: State,
        world_size: int,
        clock_s: Callable[[], float],
    ) -> None:
        self._group = _Timed(group, clock_s)
        self._clock_s = clock_s
        self._world_size = world_size
        memory = aligned_zeros(layout.total_bytes, group.device)
        self.buffer = GradientBuffer(
            layout, memory, parameters,
            bucket_bytes=BUCKET_BYTES, on_ready=self._ready, gauge=sum_of_values,
        )  # fmt: skip
        self._vectors = layout.vectors(memory)
        self._joiner = Joiner(
            self._group,
            layout.views(memory),
            Codecs(compression, layout.slots, kept.get("starts")),
            feedback_for(compression, layout.slots, kept.get("residuals")),
            world_size=world_size,
        )
        self._share = WarmUpShare(updates=compression.warmup, workers=world_size)
        self.account = Account(
            [slot.span_bytes for slot in layout.slots], _wire_bytes_per_s(group, clock_s)
        )
        self.sent_bytes = 0
        self._own = Own(computed=False, unit=1.0, turn=0, progress=0, window=1)
        self._ballot = torch.empty(0)
        self._began_s = clock_s()
        self._ready_s: list[float] = []

    def before_backward(self, *, last: bool) -> None:
        """A backward pass is about to run, the window's last if ``last``."""
        self._began_s, self._ready_s = self._clock_s(), []
        self.buffer.arm(last=last)

    def describe(self, own: Own) -> None:
        """What :meth:`finish` has to know of this rank's window."""
        self._own = own

    def send(self, numbers: list[float]) -> None:
        """The buffer is flushed, and this is the window's ballot."""
        self._ballot = torch.tensor(numbers, dtype=torch.float64, device=self._group.device)

    def finish(self) -> Reduced:
        """Block until the gradients are the sums over all ranks, as far as they were sent."""
        self._group.finish(self._group.start_sum(self._ballot))
        ballots = self._ballot.tolist()
        result = tally(ballots, world_size=self._world_size)
        self.sent_bytes = self._ballot.numel() * self._ballot.itemsize
        norm = 0.0
        if result.weight > 0 and not result.broken and not result.bad:
            self._join(result.used)
            norm = math.sqrt(sum(map(sum_of_squares, self._vectors)))
        done_s = (self._clock_s(),) * len(self._ready_s)
        times = BucketTimes(began_s=self._began_s, ready_s=tuple(self._ready_s), done_s=done_s)
        return Reduced(ballots=ballots, norm=norm, times=times)

    def settle(self, applied: bool) -> None:
        """The update was applied, or leaves no trace."""
        self._joiner.settle(applied)

    def state(self) -> dict[str, Any]:
        """For this rank's part of a checkpoint."""
        return self._joiner.state()

    def _join(self, used: Sequence[bool]) -> None:
        own, mine = self._own, self.buffer.used()
        share = self._share.at(own.progress, own.window)
        self.account.warm(share)
        began_s, waited_s = self._clock_s(), self._group.waited_s
        sent = self._joiner.join(
            Window(
                moment=Moment(turn=own.turn, share=share, unit=own.unit),
                used=used,
                own=[own.computed and bool(one) for one in mine],
            )
        )
        self.sent_bytes += sent.sent_bytes
        took_s = self._clock_s() - began_s - (self._group.waited_s - waited_s)
        self.account.joined(sent, took_s)

    def _ready(self, _: int) -> None:
        self._ready_s.append(self._clock_s())


class _Timed:
    """``group``, and how long was waited for it."""

    def __init__(self, group: Group, clock_s: Callable[[], float]) -> None:
        self.device = group.device
        self.waited_s = 0.0
        self._group = group
        self._clock_s = clock_s
        self.start_sum = group.start_sum
        self.start_gather = group.start_gather

    def finish(self, work: Any) -> None:
        began_s = self._clock_s()
        self._group.finish(work)
        self.waited_s += self._clock_s() - began_s


def _wire_bytes_per_s(group: Group, clock_s: Callable[[], float]) -> float:
    """Bytes of a gradient that an all-reduce carries in a second: the fastest of a few, as whatever else
    runs on a machine only adds to a time."""
    probe = torch.zeros(PROBE_BYTES // 4, device=group.device)
    times_s = []
    for _ in range(PROBES):
        group.finish(group.start_sum(torch.zeros(1, device=group.device)))  # all have come
        began_s = clock_s()
        group.finish(group.start_sum(probe))
        times_s.append(clock_s() - began_s)
    return PROBE_BYTES / max(min(times_s), 1e-9)
