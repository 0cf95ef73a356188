"""A layout divided among shards: which bytes of it each of them has. Whole parameters, each one's once.

``owners[place]`` is the shard of a parameter. A part keeps the layout's addresses, so that a shard's
memory is the whole one's, of which it touches its own bytes only. Who owns what is not decided here
(:mod:`paceline.server.division`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from paceline.gradients.buckets import buckets_of
from paceline.gradients.layout import ALIGNMENT_BYTES, FlatLayout


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Bytes of the layout that travel together. ``bucket``: the one that they are all in."""

    start_bytes: int
    stop_bytes: int
    bucket: int = 0


def places_of(owners: Sequence[int], shard: int) -> list[int]:
    """The parameters that ``shard`` has, in the user's order."""
    return [place for place, owner in enumerate(owners) if owner == shard]


def part_of(layout: FlatLayout, owners: Sequence[int], shard: int) -> FlatLayout:
    """``layout`` with the slots that ``shard`` has and no others; addresses and size are the whole's."""
    slots = tuple(layout.slots[place] for place in places_of(owners, shard))
    return replace(layout, slots=slots, order=tuple(range(len(slots))))


def runs_of(layout: FlatLayout, owners: Sequence[int], shard: int) -> list[Piece]:
    """The bytes that ``shard`` has, in memory order, neighbours together."""
    return _pieces(layout, places_of(owners, shard), 0)


def pushed_pieces(
    layout: FlatLayout, owners: Sequence[int], shard: int, bucket_bytes: int
) -> list[Piece]:
    """The same, bucket by bucket, in the order in which buckets are full."""
    return [
        piece
        for number, bucket in enumerate(buckets_of(layout, bucket_bytes))
        for piece in _pieces(layout, (p for p in bucket.places if owners[p] == shard), number)
    ]


def _pieces(layout: FlatLayout, places: Iterable[int], bucket: int) -> list[Piece]:
    pieces: list[Piece] = []
    for slot in sorted((layout.slots[place] for place in places), key=lambda s: s.offset_bytes):
        start = slot.offset_bytes
        stop = start + -(-slot.span_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if start == stop:
            continue
        if pieces and pieces[-1].stop_bytes == start:
            start = pieces.pop().start_bytes
        pieces.append(Piece(start_bytes=start, stop_bytes=stop, bucket=bucket))
    return pieces
