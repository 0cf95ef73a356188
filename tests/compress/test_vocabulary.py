"""What can be said of compression, and what it costs by formula."""

from __future__ import annotations

import pytest

from paceline.compression import (
    Compression,
    Int8,
    PowerSGD,
    RandomK,
    Sign,
    TopK,
    at,
    parse_compression,
)
from paceline.errors import UsageError
from paceline.payloads import is_whole, parcel_bytes, payload_bytes, push_bytes

WORDS = (
    "topk:0.01", "topk:0.5,warmup=0", "randomk:0.01", "randomk:0.1,seed=7,warmup=3", "powersgd:4",
    "powersgd:1,feedback=off", "int8", "sign", "sign,feedback=off",
    "topk:0.01,pull=topk:0.05", "powersgd:4,feedback=off,pull=int8", "int8,pull=sign",
)  # fmt: skip


@pytest.mark.parametrize("text", WORDS)
def test_words_are_printed_as_they_are_parsed(text: str) -> None:
    parsed = parse_compression(text)
    assert str(parsed) == text
    assert parse_compression(str(parsed)) == parsed


def test_values_are_taken_as_they_are() -> None:
    assert parse_compression(None) is None
    assert parse_compression(TopK(density=0.1)) == Compression(method=TopK(density=0.1), warmup=100)
    assert parse_compression("int8") == Compression(method=Int8(), warmup=0)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gzip", "compress='gzip'"), ("topk:0", "topk=0.0"), ("topk:1.5", "topk=1.5"),
        ("topk:many", "compress='topk:many'"), ("powersgd:0", "powersgd=0"),
        ("powersgd:1.5", "compress="), ("int8:4", "compress="), ("topk:0.01,seed=7", "compress="),
        ("topk:0.01,feedback=maybe", "compress="), ("int8,warmup=5", "int8 and warmup=5"),
        (8, "compress=8"), ("topk:0.01,pull=powersgd:4", "pull='powersgd:4'"),
        ("topk:0.01,pull=randomk:0.1", "pull='randomk:0.1'"), ("topk:0.01,pull=", "compress="),
    ],
)  # fmt: skip
def test_bad_words_are_named(text: str, names: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_compression(text)
    assert names in str(caught.value)


def test_densities_fall_geometrically_and_products_start_late() -> None:
    topk = Compression(method=TopK(density=0.01), warmup=100)
    assert [at(topk, share) for share in (0.0, 0.5, 1.0)] == [
        TopK(density=1.0), TopK(density=0.1), TopK(density=0.01),
    ]  # fmt: skip
    product = Compression(method=PowerSGD(rank=4), warmup=100)
    assert (at(product, 0.99), at(product, 1.0)) == (None, PowerSGD(rank=4))


def test_pulls_come_in_slowly_where_they_can() -> None:
    said = [parse_compression(f"topk:0.01,warmup=9,pull={pull}") for pull in ("topk:0.1", "int8")]
    pulls = [None if one is None else one.of_pulls() for one in said]
    assert pulls == [
        Compression(method=TopK(density=0.1), warmup=9), Compression(method=Int8(), warmup=0),
    ]  # fmt: skip
    assert Compression(method=Sign(), warmup=0).of_pulls() is None


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (TopK(density=0.01), 10_000 * 8), (RandomK(density=0.01), 10_000 * 4),
        (PowerSGD(rank=4), 2000 * 4 * 4), (Int8(), 1_000_000 + 977 * 4), (Sign(), 125_004),
    ],
)  # fmt: skip
def test_sizes_of_a_matrix_of_a_million(method: object, expected: int) -> None:
    assert payload_bytes(method, (1000, 1000), 4) == expected  # type: ignore[arg-type]


def test_small_flat_and_useless_are_sent_whole() -> None:
    topk = TopK(density=0.01)
    assert is_whole(topk, (100_000,), 4)
    assert is_whole(topk, (30, 30), 4)
    assert is_whole(TopK(density=0.5), (100, 100), 4)  # 8 bytes for each of 4
    assert is_whole(None, (100, 100), 4)
    assert not is_whole(topk, (100, 100), 4)
    assert parcel_bytes(topk, (10,), 4) == 40
    assert push_bytes(topk, [((100, 100), 4), ((10,), 4)]) == 16 + 800 + 40
