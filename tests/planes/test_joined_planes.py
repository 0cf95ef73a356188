"""Workers joined by the server or by collectives make the updates that the course's loop makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from planes.crew import Crew
from planes.toy import UNIT, from_hex, joint_oracle

SGD = ["SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}]
ADAM = ["Adam", {"lr": 0.01}]
Answers = list[dict[str, Any]]
# One pair of workers serves the module. The same claims under real Workers are in tests/equality and
# tests/loop; these tell a plane's fault from the loop's.
pytestmark = [
    pytest.mark.xdist_group("planes"),
    pytest.mark.full,
    pytest.mark.usefixtures("one_thread"),
]


@pytest.fixture(scope="module")
def pair() -> Iterator[Crew]:
    with Crew(2) as crew:
        yield crew


def cell(strategy: str, **changes: Any) -> dict[str, Any]:
    plane = "allreduce" if strategy == "sync:allreduce" else "server"
    basic = {"plane": plane, "strategy": strategy, "optimizer": SGD, "window": 2, "total": 11}
    return {**basic, "unit": UNIT, **changes}


def run(crew: Crew, wanted: dict[str, Any]) -> Answers:
    answers = [answer or {} for answer in crew.run(wanted)]
    for answer in answers:
        assert "error" not in answer, answer["trace"]
    return answers


def distance(one: dict[str, list[str]], other: dict[str, list[str]]) -> float:
    """max |delta| / max |theta|, the worst over the tensors."""
    pairs = [(from_hex(one[name]), from_hex(other[name])) for name in one]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


@pytest.mark.parametrize(
    ("strategy", "changes"),
    [
        ("sync:server", {"clip_norm": 0.5}),
        ("ssp:0", {"optimizer": ADAM, "window": 1}),
    ],
)
def test_the_server_makes_the_bits_of_the_courses_loop(
    pair: Crew, strategy: str, changes: dict[str, Any]
) -> None:
    wanted = cell(strategy, **changes)
    oracle = joint_oracle(wanted, 2)
    for answer in run(pair, wanted):
        assert answer["parameters"] == oracle
        assert answer["progress"] == 11
        assert answer["state"] == {place: sorted(entry) for place, entry in answer["state"].items()}
        assert len(answer["state"]) == 5, "the unused parameter has no state, all others have"


@pytest.mark.parametrize("changes", [{"clip_norm": 0.5}, {"optimizer": ADAM, "window": 1}])
def test_collectives_come_close_to_it_and_agree_among_themselves(
    pair: Crew, changes: dict[str, Any]
) -> None:
    wanted = cell("sync:allreduce", **changes)
    first, second = run(pair, wanted)
    assert first["parameters"] == second["parameters"]
    assert distance(first["parameters"], joint_oracle(wanted, 2)) <= 1e-5
    assert first["version"] == second["version"] == -(-11 // (2 * wanted["window"]))
    assert sorted(first["leased"] + second["leased"]) == list(range(11))


def test_async_computes_every_batch_once_and_ends_with_one_version(pair: Crew) -> None:
    first, second = run(pair, cell("async", total=23))
    assert first["parameters"] == second["parameters"]
    assert sorted(first["leased"] + second["leased"]) == list(range(23))
    assert first["version"] == second["version"] == sum(first["applied"]) + sum(second["applied"])
    assert first["progress"] == 23


@pytest.mark.parametrize("strategy", ["sync:allreduce", "sync:server"])
def test_a_nan_on_one_rank_skips_the_round_on_all_and_names_both(pair: Crew, strategy: str) -> None:
    answers = run(pair, cell(strategy, window=1, total=8, spoiled=[[1, 3]]))
    for answer in answers:
        assert answer["applied"] == [True, False, True, True]
        assert "second.weight" in answer["reasons"][1]
        assert "rank 1" in answer["reasons"][1]
        assert answer["version"] == 3
    assert answers[0]["parameters"] == answers[1]["parameters"]


@pytest.mark.parametrize("strategy", ["sync:allreduce", "sync:server"])
def test_a_rank_that_breaks_off_holds_nobody_up(pair: Crew, strategy: str) -> None:
    answers = run(pair, cell(strategy, window=1, total=12, leaves_at={"1": 2}))
    assert answers[0]["version"] == answers[1]["version"]
    assert answers[0]["parameters"] == answers[1]["parameters"]
    assert len(answers[0]["applied"]) == 6
    assert len(answers[1]["applied"]) == 3


@pytest.mark.parametrize("strategy", ["sync:allreduce", "sync:server", "async"])
def test_one_ranks_stop_flag_ends_the_pass_for_all(pair: Crew, strategy: str) -> None:
    answers = run(pair, cell(strategy, window=1, total=40, stops=[[1, 2]]))
    assert answers[0]["version"] == answers[1]["version"] < 20
    assert answers[0]["parameters"] == answers[1]["parameters"]


@pytest.mark.parametrize("strategy", ["sync:allreduce", "sync:server", "async"])
def test_a_stream_of_unknown_length_ends_where_its_batches_end(pair: Crew, strategy: str) -> None:
    wanted = cell(strategy, announced=None)
    answers = run(pair, wanted)
    assert answers[0]["parameters"] == answers[1]["parameters"]
    assert answers[0]["progress"] == 11
    if strategy != "async":
        assert distance(answers[0]["parameters"], joint_oracle(wanted, 2)) <= 1e-5


def test_one_exchange_per_window_whatever_the_window(pair: Crew) -> None:
    short = run(pair, cell("sync:allreduce", window=1, total=16))[0]
    long = run(pair, cell("sync:allreduce", window=4, total=16))[0]
    assert sum(short["sent_bytes"]) == 4 * sum(long["sent_bytes"])
