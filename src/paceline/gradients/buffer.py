"""A window's gradients in one flat piece of memory, filled by autograd through parameter hooks.

A parameter's first gradient of a window is copied into its view and the view becomes its ``.grad``;
later micro-batches then accumulate in place. So ``.grad`` stays None for what was not used, and not
a bit (the sign of a zero included) differs from plain accumulation.

The memory is cut into buckets. In the window's last backward a bucket is *ready* as soon as all its
parameters have their gradient and all buckets before it are ready: the owner is told at once, and
may send it while backward goes on. Whose memory it is, and where buckets go, is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch

from paceline.errors import UsageError
from paceline.gradients.buckets import buckets_of
from paceline.gradients.layout import FlatLayout

LARGE_BYTES = 2**16
"""Buckets of such parameters, on average, are judged parameter by parameter, each as it comes."""


class GradientBuffer:
    """Gradients of ``parameters`` (in the layout's order) in ``memory`` (uint8, on their device).

    ``buckets`` and ``vectors`` (each bucket's memory, flat) are in launch order. ``on_ready(index)``
    is called for 0, 1, 2, ... once each window, from within backward or :meth:`flush`; from then on
    the bucket belongs to the caller, until :meth:`clear`. Every gradient passes through ``gauge`` once
    (:mod:`paceline.gradients.norms`): a sum over its values, not finite if one of them is not.
    """

    def __init__(
        self,
        layout: FlatLayout,
        memory: torch.Tensor,
        parameters: Sequence[torch.nn.Parameter],
        *,
        bucket_bytes: int,
        on_ready: Callable[[int], None],
        gauge: Callable[[torch.Tensor], float],
    ) -> None:
        self._names = [slot.name for slot in layout.slots]
        self._views = layout.views(memory)
        self._parameters = list(parameters)
        self._on_ready = on_ready
        self._gauge = gauge
        self.buckets = buckets_of(layout, bucket_bytes)
        self.vectors = [
            memory[bucket.start_bytes : bucket.stop_bytes].view(bucket.dtype)
            for bucket in self.buckets
        ]
        self._bucket_of = {
            place: index for index, bucket in enumerate(self.buckets) for place in bucket.places
        }
        self._large = [
            bucket.stop_bytes - bucket.start_bytes >= len(bucket.places) * LARGE_BYTES
            for bucket in self.buckets
        ]
        self._forget()
        self._handles = [
            parameter.register_post_accumulate_grad_hook(partial(self._accumulated, place))  # type: ignore[no-untyped-call]
            for place, parameter in enumerate(self._parameters)
        ]

    def arm(self, *, last: bool) -> None:
        """Expect the gradients of a backward; in the window's ``last`` one buckets become ready."""
        self._armed = True
        self._last = last

    @property
    def ready(self) -> int:
        """How many buckets are ready: those numbered below it."""
        return self._ready

    def used(self) -> bytes:
        """One byte a parameter: 1 if it has a gradient in this window."""
        return bytes(self._used)

    def flush(self, *, fill_unused: bool) -> None:
        """The window is complete: make ready, in order, whatever is not.

        ``fill_unused``: with zeros where this window has no gradient (what another worker's is added
        to); else what lies there is left from an earlier window.
        """
        while self._ready < len(self.buckets):
            unused = [place for place in self.buckets[self._ready].places if not self._used[place]]
            if fill_unused:
                for place in unused:
                    self._views[place].zero_()
            self._make_ready(whole=fill_unused or not unused)

    def gauged(self) -> float:
        """The sum of all gauges of the buckets that are ready; inf if it is not finite."""
        total = sum(self._gauges)
        return total if math.isfinite(total) else math.inf

    def first_bad(self) -> int | None:
        """The first parameter whose gradient held a NaN or an infinity when its bucket became ready."""
        return min(self._bad, default=None)

    def discard(self) -> None:
        """Forget this window's gradients, as if nothing had been computed; what is ready is gone."""
        self._used = bytearray(len(self._parameters))

    def divide(self, divisor: float) -> None:
        if divisor != 1.0:
            for vector in self.vectors:
                vector.div_(divisor)

    def show(self, used: Sequence[int]) -> None:
        """Let ``.grad`` of the ``used`` parameters be the views, None for all others."""
        for place, parameter in enumerate(self._parameters):
            parameter.grad = self._views[place] if used[place] else None

    def clear(self) -> None:
        """The window is over: no gradients, and none expected."""
        self._forget()
        for parameter in self._parameters:
            parameter.grad = None

    def close(self) -> None:
        """Give the parameters back as they were found, without gradients."""
        self.clear()
        for handle in self._handles:
            handle.remove()
        self._on_ready = _nobody  # or owner and buffer would keep each other in memory

    def _forget(self) -> None:
        self._armed = self._last = False
        self._used = bytearray(len(self._parameters))
        self._arrived = bytearray(len(self._parameters))
        self._missing = [len(bucket.places) for bucket in self.buckets]
        self._ready = 0
        self._bad: list[int] = []
        self._gauges: list[float] = []
        self._gauge_of: dict[int, float] = {}

    def _accumulated(self, place: int, parameter: torch.Tensor) -> None:
        if not self._armed:
            parameter.grad = None
            raise stray_backward(self._names[place])
        gradient = parameter.grad
        if gradient is self._views[place]:
            self._gauge_of.pop(place, None)  # something was added to it
        elif gradient is not None:
            self._adopt(place, parameter, gradient)
        if self._last:
            self._arrive(place)

    def _adopt(self, place: int, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """Copy what autograd made for itself into its place here; it is in the cache right now."""
        if gradient.layout != torch.strided:
            raise UsageError(
                f"{self._names[place]} has a sparse gradient, which cannot be joined between "
                f"workers. Build its layer with sparse=False."
            )
        values = gradient.detach()
        if self._last and self._large[self._bucket_of[place]]:
            self._gauge_of[place] = self._gauge(values)
        self._views[place].copy_(values)
        parameter.grad = self._views[place]
        self._used[place] = 1

    def _arrive(self, place: int) -> None:
        """The last backward has brought this gradient."""
        bucket = self._bucket_of[place]
        if bucket < self._ready:
            raise _came_again(self._names[place])
        if self._arrived[place]:
            return
        self._arrived[place] = 1
        self._missing[bucket] -= 1
        while self._ready < len(self.buckets) and not self._missing[self._ready]:
            self._make_ready(whole=True)

    def _make_ready(self, *, whole: bool) -> None:
        """Hand the next bucket over. Its values are judged first, while they are in the cache.

        ``whole``: nothing in it is left from an earlier window.
        """
        index = self._ready
        places = self.buckets[index].places
        if whole and not self._large[index]:
            gauge = self._gauge(self.vectors[index])
        else:
            gauge = sum(self._gauged(place) for place in places if self._used[place])
        if not math.isfinite(gauge):
            self._bad += self._not_finite(places)
        self._gauges.append(gauge)
        self._ready += 1
        self._on_ready(index)

    def _gauged(self, place: int) -> float:
        known = self._gauge_of.get(place)
        return self._gauge(self._views[place]) if known is None else known

    def _not_finite(self, places: Iterable[int]) -> list[int]:
        return [
            place
            for place in places
            if self._used[place] and not bool(torch.isfinite(self._views[place]).all())
        ]


def _nobody(_: int) -> None:
    raise AssertionError("the buffer is closed")


def stray_backward(name: str) -> UsageError:
    """The error for a gradient (of parameter ``name``) that came outside ``worker.step``."""
    return UsageError(
        f"A gradient of {name} was computed outside worker.step. Delete the line "
        f"`loss.backward()`: worker.step(loss) runs the backward pass."
    )


def _came_again(name: str) -> UsageError:
    return UsageError(
        f"A gradient of {name} came twice in one backward pass, the second time after the first was "
        f"on its way to the other workers. If its layer is in a checkpoint() and used more than once, "
        f"say checkpoint(..., use_reentrant=False)."
    )
