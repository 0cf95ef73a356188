"""Sums a window's gradients over all ranks, bucket by bucket, while backward still runs.

A bucket's all-reduce starts in the hook that completes it. The last parcel starts once the window
is complete: with the ballot on board where its type can carry one, so that a small model needs one
collective a window. What the ballot says, and what becomes of the sums, is the plane's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from paceline.gradients.buffer import GradientBuffer
from paceline.gradients.layout import ALIGNMENT_BYTES, FlatLayout
from paceline.transport.collective import Group

BUCKET_BYTES = 25 * 2**20

CARRIERS = (torch.float32, torch.float64)
"""Types of gradients between which a ballot can travel."""


class Reducer:
    """The gradient memory of ``parameters`` and its sum over ``group``.

    Every rank calls :meth:`send`, then :meth:`finish`, once each window. ``clock_s``: monotonic.
    """

    def __init__(
        self,
        group: Group,
        layout: FlatLayout,
        parameters: Sequence[torch.nn.Parameter],
        *,
        ballot_size: int,
        clock_s: Callable[[], float],
    ) -> None:
        self._group = group
        self._clock_s = clock_s
        first = layout.slots[0].dtype
        kind = first if first in CARRIERS else torch.float64
        head_bytes = _aligned(ballot_size * kind.itemsize)
        memory = _zeros(head_bytes + layout.total_bytes, group.device)
        self._ballot = memory[:head_bytes].view(kind)[:ballot_size]
        self.buffer = GradientBuffer(
            layout, memory[head_bytes:], parameters,
            bucket_bytes=BUCKET_BYTES, on_ready=self._ready,
        )  # fmt: skip
        # The last bucket begins where the layout does: right behind the ballot.
        last_bytes = self.buffer.buckets[-1].stop_bytes
        head = memory[: head_bytes + last_bytes if kind is first else head_bytes].view(kind)
        self._parcels = [
            *(self.buffer.vectors[:-1] if kind is first else self.buffer.vectors),
            head,
        ]
        self._works: list[Any] = []
        self.sent_bytes = sum(one.numel() * one.itemsize for one in parameters)
        self.sent_bytes += self._ballot.numel() * kind.itemsize
        self._began_s = clock_s()

    def before_backward(self, *, last: bool) -> None:
        """A backward pass is about to run, the window's last if ``last``."""
        self.buffer.arm(last=last)
        if last:
            self._began_s = self._clock_s()

    def send(self, numbers: list[float]) -> None:
        """The window is complete and flushed, and this is its ballot: send what is left."""
        self._ballot.copy_(torch.tensor(numbers, dtype=self._ballot.dtype))
        self._start()

    def finish(self) -> tuple[list[float], float]:
        """Block until everything is the sum over all ranks: the ballots, and the norm of the sum.

        A norm that is not finite may only be too large for its square.
        """
        squares = 0.0
        for place, work in enumerate(self._works):
            self._group.finish(work)
            if place < len(self.buffer.vectors):
                squares += square(self.buffer.vectors[place])
        self._works = []
        return self._ballot.tolist(), math.sqrt(squares)

    def _ready(self, index: int) -> None:
        if index < len(self._parcels) - 1:
            self._start()

    def _start(self) -> None:
        self._works.append(self._group.start_sum(self._parcels[len(self._works)]))


def _zeros(size_bytes: int, device: torch.device) -> torch.Tensor:
    """Memory that starts on a boundary of the alignment anywhere: one line more is allocated."""
    raw = torch.zeros(size_bytes + ALIGNMENT_BYTES, dtype=torch.uint8, device=device)
    start = -raw.data_ptr() % ALIGNMENT_BYTES
    return raw[start : start + size_bytes]


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def square(values: torch.Tensor) -> float:
    if values.dtype in (torch.float32, torch.float64):
        return torch.dot(values, values).item()
    wide = torch.promote_types(values.dtype, torch.float32)
    return float(torch.linalg.vector_norm(values, dtype=wide).item()) ** 2
