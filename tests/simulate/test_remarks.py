"""Beneath the table: whether a machine pays, what sends less, and what a recorded run cannot tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.simulate.cluster import ClusterModel
from paceline.simulate.predict import Scenario, predict
from paceline.simulate.recorded import RecordedTimes
from paceline.simulate.recorded_ways import RecordedWays
from paceline.simulate.remarks import remarks
from paceline.simulate.scenes import Scene
from paceline.simulate.table import Result, render
from paceline.strategies import parse_strategy

SLOW = "[network]\nsize_bytes = 20e6\nbytes_per_s = 125e6\n"
FAST = "[network]\nsize_bytes = 20e6\nbytes_per_s = 125e9\n"


def results(*words: str, scenario: Scenario) -> list[Result]:
    return [
        Result(
            scene=Scene(scenario=scenario),
            prediction=predict(parse_strategy(word), scenario)[0],
        )
        for word in words
    ]


def cluster(workers: int = 2, network: str = "") -> Scenario:
    """Steps of 50 ms."""
    model = ClusterModel.parse(f"[workers]\ncount = {workers}\nstep_s = 0.05\n{network}")
    return Scenario(cluster=model, steps=39, network=model.network)


def recorded(**changes: Any) -> Scenario:
    """Of two workers: steps of 50 ms, and 10 ms for whatever is exchanged."""
    times = RecordedTimes(own_s=(np.full(20, 0.05),) * 2)
    each_s = (np.full(20, 0.01),) * 2
    ways = RecordedWays(
        times=times, push_s=each_s, pull_s=each_s, rounds_s=np.full(20, 0.01),
        **{"over_network": False, **changes},
    )  # fmt: skip
    return Scenario(cluster=times, steps=20, network=ways)


def test_speed_up_is_against_one_worker_that_nothing_is_wrong_with() -> None:
    slow = "[[stragglers]]\nrank = 1\nfactor = 4.0\n"
    alone, four, held = (
        results("sync", scenario=cluster(workers, more))[0].prediction
        for workers, more in ((1, ""), (4, ""), (4, slow))
    )
    assert [one.speed_up for one in (alone, four, held)] == pytest.approx([1.0, 4.0, 1.0])
    assert held.speed_up == pytest.approx(held.windows_per_s * 0.05)


def test_a_slow_network_is_named_with_what_sends_less() -> None:
    found = results("sync", "async", scenario=cluster(network=SLOW))
    said = " ".join(remarks(found))
    assert "all-reduce of 2 workers takes 160 ms, computing a window 50.0 ms" in said
    assert "local:13" in said
    assert "push_bytes in [network]" in said
    assert "Slower together than one worker alone: sync:allreduce (0.48x) and async" in said
    assert said.split()[0] in render(found, remarks(found))
    thirteen = results("local:13", scenario=cluster(network=SLOW))
    assert thirteen[0].prediction.busy == pytest.approx(0.8, abs=0.02), "what the hint promises"


@pytest.mark.parametrize(
    ("words", "network"),
    [
        (("sync", "async"), FAST),
        (("sync", "async"), ""),
        (("local:64",), SLOW),
        (("sync",), SLOW + "push_bytes = 1e4\n"),
    ],
)
def test_nothing_is_said_where_there_is_nothing_to_say(
    words: tuple[str, ...], network: str
) -> None:
    assert remarks(results(*words, scenario=cluster(network=network))) == []


def test_rows_of_unlike_sizes_are_compared_by_speed_up() -> None:
    found = [*results("sync", scenario=cluster(1)), *results("sync", scenario=cluster(4))]
    assert [text for text in remarks(found) if "time does not compare" in text]


def test_a_backup_that_leaves_one_push_is_said_to() -> None:
    assert "backup:1 an update is of one" in " ".join(
        remarks(results("backup:1", scenario=cluster(2)))
    )
    assert remarks(results("backup:1", scenario=cluster(3))) == []


@pytest.mark.parametrize(
    ("over_network", "free", "why"),
    [
        (False, "sync:allreduce and local:8", "through a server, and says nothing of all-reduces"),
        (True, "async", "by all-reduce, and says nothing of pushing to a server"),
    ],
)
def test_exchanges_that_cost_nothing_for_want_of_a_record_are_named(
    over_network: bool, free: str, why: str
) -> None:
    scenario = recorded(over_network=over_network)
    (said,) = remarks(results("sync:allreduce", "async", "local:8", scenario=scenario))
    assert said.startswith(f"Exchanges are taken to cost nothing under {free}: ")
    assert why in said
    known = ("sync:allreduce", "local:8") if over_network else ("async", "sync:server")
    assert remarks(results(*known, scenario=scenario)) == []


def test_one_recorded_worker_tells_of_no_exchange() -> None:
    (said,) = remarks(results("async", scenario=recorded(alone=True)))
    assert "was of one worker" in said
