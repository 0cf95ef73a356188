"""Sums a window's gradients over all ranks, parcel by parcel, while backward still runs.

A parcel's all-reduce starts in the hook that completes it. The last one starts once the window is
complete: with the ballot on board where its type can carry one, so that a small model needs one
collective a window. What the ballot says, and what becomes of the sums, is the plane's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from paceline.gradients.buckets import buckets_of
from paceline.gradients.buffer import GradientBuffer
from paceline.gradients.layout import ALIGNMENT_BYTES, FlatLayout
from paceline.gradients.norms import sum_of_squares, sum_of_values
from paceline.worker.plane import BucketTimes

BUCKET_BYTES = 4 * 2**20
"""Gradients are judged in pieces of this size: what was just written should still be in the cache."""

PARCEL_BYTES = 25 * 2**20
"""Gradients are sent in pieces of this size: large enough for the wire, small enough to overlap."""

CARRIERS = (torch.float32, torch.float64)
"""Types of gradients beside which a ballot can travel."""


class Sums(Protocol):
    """What adds up over all ranks: :class:`paceline.transport.collective.Group`."""

    device: torch.device

    def start_sum(self, tensor: torch.Tensor, on_done: Callable[[], None] | None) -> Any:
        """Begin; ``on_done`` is called from any thread."""

    def finish(self, work: Any) -> None:
        """Block until the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reduced:
    """``ballots``: their sum. ``norm``: of the summed gradient; not finite also if merely its square
    is too large."""

    ballots: list[float]
    norm: float
    times: BucketTimes


class Reducer:
    """The gradient memory of ``parameters`` and its sum over ``group``.

    Every rank calls :meth:`send`, then :meth:`finish`, once each window. ``parcel_bytes`` must be
    equal on all; ``ballot_size`` in numbers; ``clock_s``: monotonic.
    ``ballot_alone``: no gradients beside it, as these are rounded on their way.
    """

    def __init__(
        self,
        group: Sums,
        layout: FlatLayout,
        parameters: Sequence[torch.nn.Parameter],
        *,
        ballot_size: int,
        clock_s: Callable[[], float],
        parcel_bytes: int = PARCEL_BYTES,
        ballot_alone: bool = False,
    ) -> None:
        self._group = group
        self._clock_s = clock_s
        parcels = buckets_of(layout, parcel_bytes)
        carries = parcels[-1].dtype in CARRIERS and not ballot_alone
        kind = parcels[-1].dtype if carries else torch.float64
        head_bytes = _aligned(ballot_size * kind.itemsize)
        memory = aligned_zeros(head_bytes + layout.total_bytes, group.device)
        gradients = memory[head_bytes:]
        self.buffer = GradientBuffer(
            layout,
            gradients,
            parameters,
            bucket_bytes=min(BUCKET_BYTES, parcel_bytes),
            on_ready=self._ready,
            gauge=sum_of_values,
        )
        self._vectors = [
            gradients[one.start_bytes : one.stop_bytes].view(one.dtype) for one in parcels
        ]
        self._ballot = memory[:head_bytes].view(kind)[:ballot_size]
        # The last parcel lies where the layout begins: right behind the ballot.
        head = memory[: head_bytes + carries * parcels[-1].stop_bytes].view(kind)
        self._wires = [*(self._vectors[:-1] if carries else self._vectors), head]
        # A parcel is complete with the bucket that holds its first parameter.
        holder = {p: n for n, bucket in enumerate(self.buffer.buckets) for p in bucket.places}
        self._completes = [holder[parcel.places[0]] for parcel in parcels]
        ballot_bytes = self._ballot.numel() * self._ballot.itemsize
        self.sent_bytes = sum(slot.span_bytes for slot in layout.slots) + ballot_bytes
        self._forget()

    def before_backward(self, *, last: bool) -> None:
        """A backward pass is about to run, the window's last if ``last``."""
        self._began_s = self._clock_s()
        self.buffer.arm(last=last)

    def send(self, numbers: list[float]) -> None:
        """The buffer is flushed, and this is the window's ballot: send what is left."""
        self._ballot.copy_(torch.tensor(numbers, dtype=self._ballot.dtype))
        self._start()

    def finish(self) -> Reduced:
        """Block until everything is the sum over all ranks."""
        for place, work in enumerate(self._works):
            self._group.finish(work)
            if place < len(self._vectors):
                self._done_s[place] = self._done_s[place] or self._clock_s()
        squares = map(self._square, range(len(self._vectors)))
        norm = math.sqrt(sum(squares))
        times = BucketTimes(
            began_s=self._began_s, ready_s=tuple(self._ready_s), done_s=tuple(self._done_s)
        )
        self._forget()
        return Reduced(ballots=self._ballot.tolist(), norm=norm, times=times)

    def _forget(self) -> None:
        self._began_s = self._clock_s()
        self._works: list[Any] = []
        self._ready_s: list[float] = []
        self._done_s = [0.0] * len(self._vectors)
        self._squares: list[float | None] = [None] * len(self._vectors)

    def _ready(self, bucket: int) -> None:
        while len(self._ready_s) < len(self._completes):
            if self._completes[len(self._ready_s)] > bucket:
                return
            self._ready_s.append(self._clock_s())
            if len(self._works) < len(self._wires) - 1:
                self._start()

    def _start(self) -> None:
        """The next parcel. Who waits for the last one sees its end without being told."""
        place = len(self._works)
        tell = place < len(self._wires) - 1
        on_done = partial(self._done, self._done_s, self._squares, place) if tell else None
        self._works.append(self._group.start_sum(self._wires[place], on_done))

    def _done(self, done_s: list[float], squares: list[float | None], place: int) -> None:
        """Called from any thread. The sum is judged while it is in the cache."""
        done_s[place] = self._clock_s()
        squares[place] = sum_of_squares(self._vectors[place])

    def _square(self, place: int) -> float:
        known = self._squares[place]
        return sum_of_squares(self._vectors[place]) if known is None else known


def aligned_zeros(size_bytes: int, device: torch.device) -> torch.Tensor:
    """Memory that starts on a boundary of the alignment anywhere: one line more is allocated."""
    raw = torch.zeros(size_bytes + ALIGNMENT_BYTES, dtype=torch.uint8, device=device)
    start = -raw.data_ptr() % ALIGNMENT_BYTES
    return raw[start : start + size_bytes]


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
