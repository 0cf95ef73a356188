"""Who has what: whole parameters, balanced by bytes; and which bytes travel to whom."""

from __future__ import annotations

import random

import pytest
import torch

from paceline.gradients.buckets import buckets_of
from paceline.gradients.layout import FlatLayout, layout_of
from paceline.gradients.parts import Piece, part_of, places_of, pushed_pieces, runs_of
from paceline.server.division import divide, loads
from paceline.server.tiles import cut

TILE_BYTES = 1024


def layout_with(sizes: list[int]) -> FlatLayout:
    return layout_of([(f"p{i}", (size,), (1,), torch.float32) for i, size in enumerate(sizes)])


def divided(layout: FlatLayout, shards: int) -> list[int]:
    groups = [0] * len(layout.slots)
    tiles = cut(layout, groups, apart=lambda _: False, alike=lambda _: 0, tile_bytes=TILE_BYTES)
    owners = divide(layout, tiles, shards)
    for tile in tiles:
        assert len({owners[place] for place in tile.places}) == 1
    return owners


def bytes_of(pieces: list[Piece]) -> list[int]:
    return sorted(byte for one in pieces for byte in range(one.start_bytes, one.stop_bytes))


@pytest.mark.parametrize("seed", range(20))
def test_no_shard_has_more_than_the_mean_and_one_piece(seed: int) -> None:
    generator = random.Random(seed)
    sizes = [generator.choice([1, 30, 200, 1000, 5000]) for _ in range(generator.randint(1, 60))]
    layout, shards = layout_with(sizes), generator.randint(1, 5)
    load = loads(layout, divided(layout, shards), shards)
    largest = max(TILE_BYTES, 4 * max(sizes))
    assert sum(load) == 4 * sum(sizes)
    assert max(load) <= sum(load) / shards + largest


def test_equal_tensors_are_divided_equally() -> None:
    layout = layout_with([1000] * 8)
    assert loads(layout, divided(layout, 4), 4) == [8000] * 4


@pytest.mark.parametrize("seed", range(10))
def test_every_byte_travels_to_one_shard_and_each_bucket_in_turn(seed: int) -> None:
    generator = random.Random(seed)
    layout = layout_with([generator.randint(0, 900) for _ in range(30)])
    owners = [generator.randrange(3) for _ in layout.slots]
    buckets = buckets_of(layout, 2048)
    seen: list[int] = []
    for shard in range(3):
        pieces = pushed_pieces(layout, owners, shard, 2048)
        assert [one.bucket for one in pieces] == sorted(one.bucket for one in pieces)
        for one in pieces:
            bucket = buckets[one.bucket]
            assert bucket.start_bytes <= one.start_bytes < one.stop_bytes <= bucket.stop_bytes
        seen += bytes_of(pieces)
        assert bytes_of(runs_of(layout, owners, shard)) == bytes_of(pieces)
    assert sorted(seen) == list(range(layout.total_bytes))


def test_a_part_keeps_the_addresses_of_the_whole() -> None:
    layout = layout_with([5, 7, 9])
    part = part_of(layout, [1, 0, 1], 1)
    assert part.slots == (layout.slots[0], layout.slots[2])
    assert part.total_bytes == layout.total_bytes
    assert places_of([1, 0, 1], 1) == [0, 2]
