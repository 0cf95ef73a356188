"""Gradients in 16 bits on the wire: what is float32 here travels rounded, and comes back as float32.

The losses' weights have made every rank's gradient its share of the mean before it gets here, so the
sum of ranks with 1e5 and 2e4 is 6e4, not more. bf16 has float32's range. fp16 has not: each vector
is brought into it by a power of two that follows from its last sum, which is the same on all ranks.
Where none is known (at first, or after an overflow) it travels in float32 once. What becomes zero
on the way is counted; what overflows is not finite, and seen by everyone.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch

TARGET = 9
"""The largest magnitude of a vector is brought to about 2**9: it may grow 127 times before it leaves
fp16 (65504), and what is 2**33 times smaller is still not zero (2**-24)."""

LARGEST = 120
"""float32 holds no power of two beyond 2**127."""


class Sums(Protocol):
    """What adds up over all ranks."""

    device: torch.device

    def start_sum(self, tensor: torch.Tensor, on_done: Callable[[], None] | None) -> Any:
        """Begin."""

    def finish(self, work: Any) -> None:
        """Block until the end."""


@dataclass(kw_only=True, slots=True)
class _Vector:
    """A vector that is summed every window. ``exponent``: multiply by 2 to it; None: not known."""

    whole: torch.Tensor
    narrow: torch.Tensor
    exponent: int | None
    ranged: bool
    under_way: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def pack(self) -> torch.Tensor:
        """What to send."""
        self.under_way = True
        if self.exponent is None:
            return self.whole
        if self.exponent:
            self.whole.mul_(2.0**self.exponent)
        return self.narrow.copy_(self.whole)

    def unpack(self) -> None:
        """The sum is there. Called from any thread, perhaps twice."""
        with self.lock:
            if self.under_way:
                self._widen()
                self.under_way = False

    def _widen(self) -> None:
        if self.exponent is not None:
            self.whole.copy_(self.narrow)
            if self.exponent:
                self.whole.mul_(2.0**-self.exponent)
        if self.ranged:
            self._learn_range()

    def _learn_range(self) -> None:
        """Take the next exponent from this sum."""
        largest = float(self.whole.abs().max()) if self.whole.numel() else 0.0
        known = 0.0 < largest < math.inf
        self.exponent = min(LARGEST, TARGET - math.frexp(largest)[1]) if known else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """``sent_bytes`` by this rank; ``flushed``: its values that were too small and became zero."""

    sent_bytes: int
    flushed: int


class NarrowSums:
    """Sums over ``sums`` of float32 vectors, rounded to ``dtype``; other types travel as they are.

    Every rank has to give the same vectors (in memory of its own) each time.
    """

    def __init__(self, sums: Sums, dtype: torch.dtype) -> None:
        self.device = sums.device
        self._sums = sums
        self._dtype = dtype
        self._ranged = dtype == torch.float16
        self._vectors: dict[int, _Vector] = {}
        self._sent_bytes = self._flushed = 0

    def start_sum(self, tensor: torch.Tensor, on_done: Callable[[], None] | None) -> Any:
        """As that of ``sums``."""
        if tensor.dtype != torch.float32:
            self._sent_bytes += tensor.numel() * tensor.itemsize
            return None, self._sums.start_sum(tensor, on_done)
        vector = self._vector(tensor)
        sent = vector.pack()
        if self._ranged and sent.dtype != tensor.dtype:
            self._flushed += int(tensor.count_nonzero() - sent.count_nonzero())
        self._sent_bytes += sent.numel() * sent.itemsize
        told = partial(_arrived, vector, on_done) if on_done is not None else None
        return vector, self._sums.start_sum(sent, told)

    def finish(self, work: Any) -> None:
        """As that of ``sums``."""
        vector, pending = work
        self._sums.finish(pending)
        if vector is not None:
            vector.unpack()

    def take_traffic(self) -> Traffic:
        """What there was since the last time."""
        traffic = Traffic(sent_bytes=self._sent_bytes, flushed=self._flushed)
        self._sent_bytes = self._flushed = 0
        return traffic

    def _vector(self, tensor: torch.Tensor) -> _Vector:
        address = tensor.data_ptr()
        if address not in self._vectors:
            self._vectors[address] = _Vector(
                whole=tensor,
                narrow=torch.empty_like(tensor, dtype=self._dtype),
                exponent=None if self._ranged else 0,
                ranged=self._ranged,
            )
        return self._vectors[address]


def _arrived(vector: _Vector, on_done: Callable[[], None]) -> None:
    """Whoever hears of a sum may look at it."""
    vector.unpack()
    on_done()
