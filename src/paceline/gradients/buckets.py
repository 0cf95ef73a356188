"""Which parameters travel together, and in which order: a layout cut into buckets.

Backward reaches parameters last to first, so buckets are cut from the layout's end and numbered in
the order in which they can be expected to be full. Nothing here knows what is done with a bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paceline.gradients.layout import FlatLayout


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Neighbours of one type. ``places``: their numbers, as they follow each other in memory; the
    bytes are the layout's, padding included, and every byte of it is in exactly one bucket."""

    places: tuple[int, ...]
    dtype: torch.dtype
    start_bytes: int
    stop_bytes: int


def buckets_of(layout: FlatLayout, bucket_bytes: int) -> tuple[Bucket, ...]:
    """The buckets in launch order: the one whose first parameter comes last in memory first.

    A bucket is closed by the parameter that brings it to ``bucket_bytes``. Every side that cuts the
    same layout gets the same buckets.
    """
    found = [
        bucket
        for dtype, _, stop in layout.segments
        for bucket in _cut(layout, dtype, stop, bucket_bytes)
    ]
    turn = {place: number for number, place in enumerate(layout.order)}
    return tuple(sorted(found, key=lambda bucket: turn[bucket.places[0]], reverse=True))


def _cut(
    layout: FlatLayout, dtype: torch.dtype, stop_bytes: int, bucket_bytes: int
) -> list[Bucket]:
    """The buckets of one type, whose part of the layout ends at ``stop_bytes``; last one first."""
    places = [place for place in layout.order if layout.slots[place].dtype == dtype]
    found: list[Bucket] = []
    taken: list[int] = []
    for place in reversed(places):
        taken.append(place)
        start_bytes = layout.slots[place].offset_bytes
        if stop_bytes - start_bytes >= bucket_bytes or place == places[0]:
            found.append(
                Bucket(
                    places=tuple(reversed(taken)),
                    dtype=dtype,
                    start_bytes=start_bytes,
                    stop_bytes=stop_bytes,
                )
            )
            stop_bytes, taken = start_bytes, []
    return found
