"""The gradient of one update: the sum of its pushes, tile by tile. Knows no optimizer.

The sum lands in the first push's memory. Under joint strategies parts of it may have been summed
ahead, while backward still ran elsewhere (:class:`Ahead`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from paceline.gradients.buckets import Bucket, buckets_of
from paceline.gradients.layout import FlatLayout
from paceline.server.tiles import Pieces, Tile

Share = Callable[[Callable[[int], None], Sequence[int]], None]
"""Does numbered jobs, side by side or not."""


class Gradients:
    """One worker's gradients in its ``memory``: seen tile by tile, and parameter by parameter."""

    def __init__(self, layout: FlatLayout, memory: torch.Tensor) -> None:
        self.layout = layout
        self.memory = memory
        self.pieces = Pieces(memory)
        self.views = layout.views(memory)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One push, of ``rank``, as it goes into an update. ``used``: one byte a parameter, 1 if it has a
    gradient; ``norm``: of the gradient pushed, inf if not known."""

    gradients: Gradients
    used: bytes
    norm: float = float("inf")
    rank: int = -1


Edges = dict[torch.dtype, int]
"""For each type: from this byte of the layout on, the sum is there already."""


class Ahead:
    """Sums buckets as soon as every worker has filled them; all of one round, then :meth:`take`.

    Only types whose sums have the same bits however the memory is cut.
    """

    def __init__(self, layout: FlatLayout, bucket_bytes: int) -> None:
        self._buckets = buckets_of(layout, bucket_bytes)
        self._done = 0
        self._edges: Edges = {}

    def sum(self, gradients: Sequence[Gradients], filled: int, share: Share) -> None:
        """The first ``filled`` buckets hold the gradients of all workers (in rank order)."""
        first, *others = (one.memory for one in gradients)
        buckets = self._buckets[self._done : filled]

        def job(number: int) -> None:
            bucket = buckets[number]
            total = _vector(first, bucket)
            for other in others:
                total.add_(_vector(other, bucket))

        if all(bucket.dtype in (torch.float32, torch.float64) for bucket in buckets):
            share(job, range(len(buckets)))
            self._edges.update({bucket.dtype: bucket.start_bytes for bucket in buckets})
            self._done = max(self._done, filled)

    def take(self) -> Edges:
        """What is summed of the round that is decided now; the next one begins."""
        edges, self._edges, self._done = self._edges, {}, 0
        return edges


class Joint:
    """``parts`` in the order of summing, over ``divisor``. ``used``: by any part."""

    def __init__(
        self, parts: Sequence[Part], divisor: float, tiles: Sequence[Tile], edges: Edges
    ) -> None:
        self.used = joined(parts)
        self._parts = parts
        self._divisor = divisor
        self._tiles = tiles
        self._edges = edges
        self._views = [part.gradients.pieces.of(tiles) for part in parts]
        self.gradients = self._views[0]

    @property
    def bound(self) -> float:
        """The norm of the gradient is not larger than this."""
        return sum(part.norm for part in self._parts) / self._divisor

    @property
    def alone(self) -> bool:
        """It is one push, whose worker has seen its norm."""
        return len(self._parts) == 1

    @property
    def norm(self) -> float:
        """The norm of a push that is alone."""
        return self._parts[0].norm / self._divisor

    def views(self, places: Sequence[int]) -> list[torch.Tensor]:
        """The gradients of these parameters, where there is one."""
        views = self._parts[0].gradients.views
        return [views[place] for place in places if self.used[place]]

    def has(self, number: int) -> bool:
        """Whether tile ``number`` has a gradient (all its parameters have, or none)."""
        return bool(self.used[self._tiles[number].places[0]])

    def join(self, number: int) -> None:
        """Sum tile ``number`` and divide."""
        tile = self._tiles[number]
        edge = self._edges.get(tile.dtype, tile.stop)
        if edge >= tile.stop:
            first, *others = (views[number] for views in self._views)
        else:
            stop = max(tile.start, edge)
            first, *others = (
                part.gradients.memory[tile.start : stop].view(tile.dtype) for part in self._parts
            )
        for other in others:
            first.add_(other)
        if self._divisor != 1:
            self.gradients[number].div_(self._divisor)

    def square(self, number: int) -> float:
        """Tile ``number``'s sum of squares, in float32 at least."""
        if not self.has(number):
            return 0.0
        gradient = self.gradients[number]
        if self._tiles[number].slot is None:
            return float(torch.dot(gradient, gradient))
        wide = torch.promote_types(gradient.dtype, torch.float32)
        return float(torch.linalg.vector_norm(gradient, dtype=wide)) ** 2


def joined(parts: Sequence[Part]) -> bytes:
    """One byte a parameter: 1 if any part has a gradient for it."""
    if len(parts) == 1:
        return parts[0].used
    return bytes(map(any, zip(*(part.used for part in parts), strict=True)))


def _vector(memory: torch.Tensor, bucket: Bucket) -> torch.Tensor:
    return memory[bucket.start_bytes : bucket.stop_bytes].view(bucket.dtype)
