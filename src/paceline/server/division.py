"""Which shard has which parameters: balanced by bytes, tiles in one piece.

A tile (:mod:`paceline.server.tiles`) is small parameters together, or a piece of a large one. Parameters
that share a tile stay together, so that every shard's tiles, and with them the bits of every sum over a
tile, are those of one shard that has them all; a parameter is never divided, for its norm is of all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.gradients.layout import FlatLayout
from paceline.server.tiles import Tile


def divide(layout: FlatLayout, tiles: Sequence[Tile], shards: int) -> list[int]:
    """Each parameter's shard, 0 to ``shards`` - 1: the largest ones first, each to whoever has least.

    No shard has more than the mean and one undivided piece (Graham 1969: at most 4/3 of the best).
    """
    owners = [0] * len(layout.slots)
    load = [0] * shards
    together = sorted({tile.places for tile in tiles}, key=lambda one: (-_bytes(layout, one), one))
    for places in together:
        least = load.index(min(load))
        load[least] += _bytes(layout, places)
        for place in places:
            owners[place] = least
    return owners


def loads(layout: FlatLayout, owners: Sequence[int], shards: int) -> list[int]:
    """How many bytes each shard has."""
    return [
        sum(s.span_bytes for s, owner in zip(layout.slots, owners, strict=True) if owner == shard)
        for shard in range(shards)
    ]


def _bytes(layout: FlatLayout, places: Sequence[int]) -> int:
    return sum(layout.slots[place].span_bytes for place in places)
