"""The parameters cut into tiles: what one optimizer steps in one go, while it is in the cache.

An optimizer that treats every element alone gives the same bits on any piece of memory, so small
parameters are stepped together (one call instead of many) and large ones in pieces (a pass over the
cache instead of one over memory for each of the optimizer's operations). Where that does not hold a
tile is one whole parameter in its own shape. Nothing here knows gradients or versions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from paceline.gradients.layout import ALIGNMENT_BYTES, FlatLayout, Slot

TILE_BYTES = 2 * 2**20
"""Gradient, momentum and parameter of a tile stay in the last cache level together, and Python, which
only one thread at a time can run, is not what the threads wait for."""

_ELEMENTWISE = {
    "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop",
    "ASGD",
}  # fmt: skip
_WHOLE_TYPES = {torch.float16, torch.bfloat16}
"""torch rounds these differently at a vector's end than inside it: the bits depend on the place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """Bytes ``start`` to ``stop`` of the layout. ``places``: the slots it holds or is a piece of;
    ``group``: their optimizer group; ``slot``: given if the tile is that parameter in its own shape.
    """

    start: int
    stop: int
    dtype: torch.dtype
    places: tuple[int, ...]
    group: int
    slot: Slot | None = None

    def view(self, memory: torch.Tensor) -> torch.Tensor:
        """The tile in ``memory`` (uint8, laid out): one flat vector, or the parameter's shape."""
        flat = memory[self.start : self.stop].view(self.dtype)
        return flat if self.slot is None else flat.as_strided(self.slot.shape, self.slot.stride)


class Pieces:
    """A memory with the layout, seen tile by tile."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self._tiles: Sequence[Tile] = ()
        self._views: list[torch.Tensor] = []

    def of(self, tiles: Sequence[Tile]) -> list[torch.Tensor]:
        """The view of each tile; made once for the same ``tiles``."""
        if tiles is not self._tiles:
            self._tiles = tiles
            self._views = [tile.view(self.memory) for tile in tiles]
        return self._views


def is_elementwise(optimizer: str, hyper: dict[str, object]) -> bool:
    """Whether the ``torch.optim`` optimizer of this name gives each element the same bits anywhere.

    torch's fused kernels do not: they treat a vector's end differently.
    """
    return optimizer in _ELEMENTWISE and not hyper.get("fused")


def cut(
    layout: FlatLayout,
    groups: Sequence[int],
    *,
    apart: Callable[[int], bool],
    alike: Callable[[int], Hashable],
    tile_bytes: int = TILE_BYTES,
) -> tuple[Tile, ...]:
    """The layout's tiles. ``groups[place]``: the slot's optimizer group. ``apart(place)``: it has to
    be a tile of its own, in its own shape. Only slots of equal ``alike(place)`` are put together.
    """

    def kind(place: int) -> Hashable:
        slot = layout.slots[place]
        own = apart(place) or slot.dtype in _WHOLE_TYPES
        return (slot.dtype, groups[place], place if own else None, alike(place))

    in_memory = sorted(range(len(layout.slots)), key=lambda place: layout.slots[place].offset_bytes)
    tiles: list[Tile] = []
    for key, run in groupby(in_memory, key=kind):
        places = list(run)
        whole = isinstance(key, tuple) and key[2] is not None
        tiles += (
            [single(layout, places[0], groups)]
            if whole
            else _flat(layout, places, groups, tile_bytes)
        )
    return tuple(tiles)


def single(layout: FlatLayout, place: int, groups: Sequence[int]) -> Tile:
    """The tile that is one whole parameter."""
    slot = layout.slots[place]
    return Tile(
        start=slot.offset_bytes, stop=slot.offset_bytes + slot.span_bytes, dtype=slot.dtype,
        places=(place,), group=groups[place], slot=slot,
    )  # fmt: skip


def _flat(
    layout: FlatLayout, places: list[int], groups: Sequence[int], tile_bytes: int
) -> Iterator[Tile]:
    """Tiles of consecutive slots of one kind: together up to ``tile_bytes``, larger ones in pieces."""
    together: list[int] = []
    for place in places:
        slot = layout.slots[place]
        start = layout.slots[together[0]].offset_bytes if together else slot.offset_bytes
        if together and slot.offset_bytes + slot.span_bytes - start > tile_bytes:
            yield from _pieces(layout, together, groups, tile_bytes)
            together = []
        together.append(place)
    yield from _pieces(layout, together, groups, tile_bytes)


def _pieces(
    layout: FlatLayout, places: list[int], groups: Sequence[int], tile_bytes: int
) -> Iterator[Tile]:
    first, last = layout.slots[places[0]], layout.slots[places[-1]]
    start, stop = first.offset_bytes, last.offset_bytes + last.span_bytes
    count = max(1, -(-(stop - start) // tile_bytes))
    length = -(-(stop - start) // count // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    for begin in range(start, max(stop, start + 1), max(length, 1)):
        yield Tile(
            start=begin, stop=min(begin + length, stop), dtype=first.dtype,
            places=tuple(places), group=groups[places[0]],
        )  # fmt: skip
