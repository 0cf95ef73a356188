"""Groups (hybrid) in virtual time: repeated bit for bit, and as long as a simulation says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from paceline import events
from paceline.runs import read_run
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.predict import Scenario, predict
from paceline.strategies import parse_strategy
from support.leaks import assert_nothing_is_left
from support.runs import run_script
from virtual.test_virtual_runs import SCRIPT, TINY, what_came

CLUSTER = """
[workers]
count = 4
step_s = 1.0
jitter = 0.3
seed = 3
[network]
size_bytes = 1e6
bytes_per_s = 1e7
delay_s = 0.05
jitter_s = 0.1
per_node = 2
"""
pytestmark = pytest.mark.full


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER)
    return file


@pytest.mark.parametrize("strategy", ["hybrid:async", "hybrid:ssp:1"])
def test_groups_repeat_themselves_bit_for_bit(cluster: Path, strategy: str) -> None:
    options = {"workers": 4, "virtual": cluster, "strategy": strategy}
    runs = [run_script(SCRIPT, ["0"], **options) for _ in range(2)]
    first, second = map(what_came, runs)
    assert first == second
    assert "2 groups of ranks: 0,1 | 2,3" in runs[0].stderr, "the nodes of the file"
    pushed = Counter(one.ranks for one in first[3] if isinstance(one, events.Update))  # type: ignore[attr-defined]
    assert set(pushed) == {(0,), (2,)}
    assert_nothing_is_left(runs[0])


def test_groups_of_one_are_the_outer_strategy(cluster: Path) -> None:
    options = {"workers": 3, "virtual": cluster}
    flat = run_script(SCRIPT, ["0"], strategy="async", **options)
    grouped = run_script(SCRIPT, ["0"], strategy="hybrid:async", group_size=1, **options)
    assert what_came(grouped)[:3] == what_came(flat)[:3]


@pytest.mark.parametrize("strategy", ["hybrid:async", "hybrid:ssp:0", "hybrid:ssp:2"])
def test_a_run_takes_what_was_predicted(cluster: Path, strategy: str) -> None:
    script = TINY.format(inside="", after="worker.close()").replace("* 12", "* 120")
    run = run_script(script, workers=4, virtual=cluster, strategy=strategy)
    assert run.exit_code == 0, run.stderr
    model = ClusterModel.load(cluster)
    scenario = Scenario(cluster=model, steps=30, network=model.network, group_size=2)
    predicted, _ = predict(parse_strategy(strategy), scenario)
    steps = [step for rank in read_run(run.out).ranks for step in rank.steps]
    assert run.summary["virtual_s"] == pytest.approx(predicted.time_s, rel=1e-6)
    assert sum(step.forward_s + step.backward_s + step.data_s for step in steps) == pytest.approx(
        predicted.busy * 4 * predicted.time_s, rel=1e-6
    )


def test_a_member_that_fails_stops_everybody(cluster: Path) -> None:
    inside = "if worker.rank == 3 and number == 2: raise RuntimeError('disk full')"
    script = TINY.format(inside=inside, after="")
    run = run_script(script, workers=4, virtual=cluster, strategy="hybrid:async")
    assert run.exit_code == 1, run.stderr
    assert "rank 3 failed with exit code 1" in run.stderr
