"""A worker's gradients where the server reads them: a region of shared memory, told of bucket by bucket.

Nothing is sent: autograd's hooks fill the region, and a message says whose it is. While backward
still runs the server may be told how many buckets are full. Knows no windows and no replies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from paceline.gradients.buffer import GradientBuffer
from paceline.gradients.layout import FlatLayout
from paceline.gradients.norms import sum_of_squares
from paceline.transport.shared_memory import Region
from paceline.worker.plane import BucketTimes

BUCKET_BYTES = 4 * 2**20
"""A bucket is looked through for what is not finite when it is full: it should be in the cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A whole window's gradients. ``used``: one byte a parameter; ``bad``: the first that is not
    finite, "" if all are; ``norm``: inf if its square overflowed."""

    used: bytes
    bad: str
    norm: float


class Gradients(Protocol):
    """A window's gradients in a ``region`` that the server reads: a worker's own, or its group's.

    ``views``: each parameter's in the region; ``vectors``: each bucket's, in the order of buckets.
    """

    region: Region
    views: list[torch.Tensor]

    @property
    def vectors(self) -> Sequence[torch.Tensor]: ...

    def show_parameters(self) -> None:
        """Let the region hold the parameters' values, for the server to begin with."""

    def before_backward(self, *, last: bool) -> None:
        """A backward is about to run, the window's last if ``last``."""

    def complete(self, *, empty: bool, fill_unused: bool) -> Judged:
        """The window is over, with nothing computed if ``empty``: everything is in the region."""

    def clear(self) -> None:
        """The window is decided: no gradients, and none expected."""

    def times(self) -> BucketTimes | None:
        """When the buckets were full, where there are several."""

    def close(self) -> None:
        """Give the parameters back without gradients, and let go of the region."""


MakeGradients = Callable[[Sequence[torch.nn.Parameter], FlatLayout], Gradients]


class SharedGradients:
    """Gradients of ``parameters`` (in the layout's order) in a new region.

    ``tell(count)``: called within the window's last backward when its first ``count`` buckets are
    full, or None if nobody wants to know.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        layout: FlatLayout,
        *,
        tell: Callable[[int], None] | None,
        clock_s: Callable[[], float],
    ) -> None:
        self.region = Region.create(layout.total_bytes)
        self.buffer = GradientBuffer(
            layout, self.region.memory, parameters,
            bucket_bytes=BUCKET_BYTES, on_ready=self._ready, gauge=sum_of_squares,
        )  # fmt: skip
        self.views = layout.views(self.region.memory)
        """Each parameter's gradient in the region."""
        self._parameters = parameters
        self._names = [slot.name for slot in layout.slots]
        self._tell = tell
        self._clock_s = clock_s
        self._in_backward = False
        self._began_s = 0.0
        self._ready_s: list[float] = []

    @property
    def vectors(self) -> Sequence[torch.Tensor]:
        """Each bucket's memory."""
        return self.buffer.vectors

    def show_parameters(self) -> None:
        """Let the region hold the parameters' values, for the server to begin with."""
        for view, parameter in zip(self.views, self._parameters, strict=True):
            view.copy_(parameter.detach())

    def before_backward(self, *, last: bool) -> None:
        """A backward is about to run, the window's last if ``last``."""
        self.buffer.arm(last=last)
        self._in_backward = last
        self._began_s = self._clock_s()
        self._ready_s = []

    def clear(self) -> None:
        """The window is decided."""
        self.buffer.clear()

    def complete(self, *, empty: bool, fill_unused: bool) -> Judged:
        """The window is over, with nothing computed if ``empty``: everything is in the region."""
        self._in_backward = False
        if empty:
            self.buffer.discard()
        self.buffer.flush(fill_unused=fill_unused)
        bad = self.buffer.first_bad()
        return Judged(
            used=self.buffer.used(),
            bad="" if bad is None else self._names[bad],
            norm=math.sqrt(self.buffer.gauged()),
        )

    def times(self) -> BucketTimes | None:
        """When the buckets were full, where there are several."""
        if len(self._ready_s) < 2:
            return None
        return BucketTimes(began_s=self._began_s, ready_s=tuple(self._ready_s))

    def close(self) -> None:
        """Give the parameters back without gradients, and let go of the region."""
        self.buffer.close()
        self.region.close()

    def _ready(self, bucket: int) -> None:
        self._ready_s.append(self._clock_s())
        full = bucket + 1
        if self._in_backward and self._tell is not None and full < len(self.buffer.buckets):
            self._tell(full)
