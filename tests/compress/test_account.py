"""What is said of compression's worth: it pays where the wire is slower than coding is."""

from __future__ import annotations

from math import inf

import pytest

from paceline.gradients.codecs.joining import Sent
from paceline.worker.compression_account import Account

USED = b"\1\1"


def account(wire_bytes_per_s: float | None) -> Account:
    made = Account([60_000_000, 40_000_000], wire_bytes_per_s)
    for _ in range(10):
        made.packed(2_000_000, USED, 0.098)
    return made


@pytest.mark.parametrize(
    ("wire", "verdict"),
    [
        (None, "that pays on wires slower than 8 Gb/s"), (inf, "it does not pay here: on one host"),
        (2e9, "it does not pay here: the wire carries 16 Gb/s"), (125e6, "it pays: the wire carries 1 Gb/s"),
    ],
)  # fmt: skip
def test_the_verdict(wire: float | None, verdict: str) -> None:
    said = account(wire).sentence("topk:0.01")
    assert "10 pushes of rank 0 had 20 MB instead of 1,000 MB (2.00%" in said
    assert "98 ms each" in said
    assert verdict in said


def test_whole_gradients_are_not_counted_where_they_are_not_used() -> None:
    made = Account([60_000_000, 40_000_000])
    made.packed(1, b"\1\0", 1.0)
    assert made.whole_bytes == 60_000_000


def test_what_all_ranks_gather_costs_each_of_them() -> None:
    """128 ranks gathering 2 % each move more than a sum of the whole does (FAULT 19)."""
    made = Account([], wire_bytes_per_s=1e6)
    made.joined(Sent(sent_bytes=2_000_000, whole_bytes=100_000_000, wire_bytes=2_000_000 * 64), 0.1)
    assert made.breaks_even_bytes_per_s < 0
    assert "it pays on no wire" in made.sentence("topk:0.01")


def test_pulls_count_too() -> None:
    """98 ms for 98 MB, and 102 ms for 102 MB: 1 ms a megabyte."""
    made = Account([100_000_000], rank=2)
    made.packed(2_000_000, b"\1", 0.098)
    for _ in range(2):
        made.pulled(49_000_000, 100_000_000, 0.051)
    said = made.sentence("topk:0.01,pull=int8")
    assert "pushes of rank 2" in said
    assert "2 pulls had 98 MB instead of 200 MB (49.00%) and took 51 ms each" in said
    assert "that pays on wires slower than 8 Gb/s" in said


def test_the_fastest_whole_version_shows_what_the_wire_carries() -> None:
    made = Account([100_000_000])
    made.packed(2_000_000, b"\1", 0.098)
    for size, took_s in ((1000, 1e-9), (100_000_000, 1.0), (100_000_000, 0.8)):
        made.carried(size, took_s)
    assert "it pays: the wire carries 1 Gb/s" in made.sentence("topk:0.01")


def test_a_simulated_clock_stands_still_while_something_is_encoded() -> None:
    made = Account([100], inf)
    made.packed(10, b"\1", 0.0)
    made.pulled(20, 100, 0.0)
    said = made.sentence("sign,pull=int8")
    assert said.endswith("(10.00%); 1 pulls had 2e-05 MB instead of 0.0001 MB (20.00%).")


@pytest.mark.parametrize(("last", "verdict"), [(0.9, "the warm-up was not over"), (1.0, "it pays")])
def test_there_is_no_verdict_on_a_warm_up(last: float, verdict: str) -> None:
    made = account(125e6)
    for share in (0.2, last):
        made.warm(share)
        made.packed(2_000_000, USED, 0.098)
    said = made.sentence("topk:0.01")
    assert "2.00%, warm-up included" in said
    assert verdict in said
    assert "warm-up" not in account(125e6).sentence("int8")


def test_encoding_is_told_once_pulls_included() -> None:
    made = Account([100_000_000])
    made.packed(2_000_000, b"\1", took_s=0.25)
    made.pulled(1_000_000, 100_000_000, took_s=0.5)
    assert made.take_coding_s() == 0.75
    assert made.take_coding_s() == 0.0


def test_nothing_was_compressed() -> None:
    assert Account([1]).sentence("sign") == ""
