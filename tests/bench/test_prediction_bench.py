"""What ``make bench-predict`` draws, defines and concludes. Pure: nothing is started or timed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from paceline.simulate.cluster import ClusterModel
from paceline.simulate.predict import Scenario, predict
from paceline.strategies import parse_strategy

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import predict as bench
from prediction.clusters import BURSTS_END, KINDS, WORKERS, clusters
from prediction.emulated import STRATEGIES, Trial
from prediction.knee import knee
from prediction.measured import measured
from prediction.rows import Row, median_error

from synthetic_runs import step


def row(predicted: float, *, figure: str = "time_s", part: str = "from the file") -> Row:
    return Row(
        part=part, scene="x", strategy="sync", figure=figure, predicted=predicted, measured=1.0
    )


def test_any_seed_draws_two_clusters_of_each_kind_that_can_be_run() -> None:
    for seed in range(25):
        drawn = list(clusters(seed))
        assert len(drawn) == 2 * len(KINDS) == 12
        for one in drawn:
            model = ClusterModel.parse(one.text)
            assert model.count == WORKERS
            assert all(burst.start + burst.length <= BURSTS_END for burst in model.bursts)
    assert list(clusters(3)) == list(clusters(3)) != list(clusters(4))


@pytest.mark.parametrize("word", STRATEGIES)
def test_a_trace_is_measured_as_a_simulation_is(word: str) -> None:
    cluster = ClusterModel.parse(next(clusters(5)).text)
    prediction, windows = predict(parse_strategy(word), Scenario(cluster=cluster, steps=40))
    traced = []
    for rank in range(WORKERS):
        own = np.flatnonzero(windows.rank == rank)
        own = own[np.argsort(windows.start_s[own])]
        starts, ends = windows.start_s[own], windows.end_s[own]
        traced.append(
            [
                step(
                    time_s=float(start) + 77.25, pull_s=0.25, data_s=0.0, backward_s=0.0,
                    forward_s=float(end - start), wait_s=0.0, exchange_s=0.0, applied=bool(applied),
                )
                for start, end, applied in zip(starts, ends, windows.applied[own], strict=True)
            ]
        )  # fmt: skip
    seen = measured(traced)
    assert seen.time_s - 0.25 == pytest.approx(prediction.time_s)
    assert seen.busy * seen.time_s == pytest.approx(prediction.busy * prediction.time_s)


def test_how_long_to_look_follows_from_the_file_alone(tmp_path: Path) -> None:
    drawn = next(clusters(5))
    first, second = (Trial.of(drawn, tmp_path / name) for name in "ab")
    assert first.steps == second.steps >= BURSTS_END


def test_the_knee_is_where_the_line_meets_the_plateau() -> None:
    assert knee({2: 20.0, 12: 90.0}) == pytest.approx(9.0)


def test_one_figure_too_far_off_misses_the_goal_and_so_does_a_large_median() -> None:
    good = [row(1.0), row(1.09), row(0.97), row(0.97, figure="busy")]
    assert bench.good(good)
    assert not bench.good([*good, row(1.11)])
    assert not bench.good([*good, row(0.89)])
    assert not bench.good([*good, row(1.05, figure="busy"), row(0.94, figure="busy")])
    assert bench.good([*good, *[row(1.05, part="ring")] * 9])
    assert median_error([row(0.9), row(1.3), row(1.0)]) == pytest.approx(0.1)
