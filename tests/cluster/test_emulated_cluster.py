"""What the strategies promise in time, on real processes in an emulated cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline import events
from paceline.compare.figures import figures_of
from paceline.compare.lead import largest_lead
from paceline.runs import Run, read_run
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.predict import Scenario, predict
from paceline.strategies import parse_strategy
from support.runs import run_script

SCRIPT = Path(__file__).parent / "script.py"
pytestmark = pytest.mark.timeout(200)

HICCUPS = """
[workers]
count = 4
step_s = 0.02
jitter = 0.1
[hiccups]
probability = 0.15
factor = 6.0
"""

EQUAL = """
[workers]
count = 4
step_s = 0.1
jitter = 0.05
"""

ONE_SLOW = """
[workers]
count = 8
step_s = 0.1
jitter = 0.0
[[stragglers]]
rank = 5
factor = 4.0
"""

EIGHT_EQUAL = ONE_SLOW.split("[[")[0]


def trained(tmp_path: Path, cluster: str, args: list[str], *, workers: int, strategy: str) -> Run:
    emulate = tmp_path / "cluster.toml"
    emulate.write_text(cluster)
    run = run_script(SCRIPT, args, workers=workers, strategy=strategy, emulate=emulate)
    assert run.exit_code == 0, run.stderr[-3000:]
    return read_run(run.out)


def decided_batches(run: Run) -> list[int]:
    """The batches of every window that was decided, dropped ones included."""
    running: dict[int, tuple[int, ...]] = {}
    decided: list[int] = []
    for decision in run.decisions:
        if isinstance(decision, events.Start):
            running[decision.rank] = decision.batches
        elif isinstance(decision, events.Update):
            for rank in decision.ranks:
                decided.extend(running.pop(rank))
        elif isinstance(decision, events.Drop):
            decided.extend(running.pop(decision.rank))
    return decided


@pytest.mark.parametrize("staleness", [pytest.param(1, marks=pytest.mark.full), 3])
def test_the_largest_lead_at_a_start_equals_s(tmp_path: Path, staleness: int) -> None:
    run = trained(tmp_path, HICCUPS, ["240"], workers=4, strategy=f"ssp:{staleness}")
    assert largest_lead(run.decisions) == staleness
    assert sorted(decided_batches(run)) == list(range(240))


@pytest.mark.timed
def test_async_with_equal_workers_has_a_mean_version_lag_of_n_minus_1(tmp_path: Path) -> None:
    run = trained(tmp_path, EQUAL, ["424"], workers=4, strategy="async")
    lags = [step.lag for rank in run.ranks for step in rank.steps[1:-1]]
    assert min(len(rank.steps) for rank in run.ranks) >= 100
    assert np.mean(lags) == pytest.approx(3.0, rel=0.05)


@pytest.mark.timed
def test_an_async_epoch_does_not_wait_for_its_slowest_worker(tmp_path: Path) -> None:
    batches, step_s = 232, 0.1
    run = trained(tmp_path, ONE_SLOW, [str(batches)], workers=8, strategy="async")
    ideal_s = batches * step_s / (7 + 1 / 4)
    assert figures_of(run).wall_s <= 1.2 * ideal_s
    assert sorted(decided_batches(run)) == list(range(batches))


@pytest.mark.timed
def test_a_sync_epoch_lasts_as_long_as_its_slowest_worker(tmp_path: Path) -> None:
    slow = trained(tmp_path, ONE_SLOW, ["96"], workers=8, strategy="sync")
    equal = trained(tmp_path, EIGHT_EQUAL, ["96"], workers=8, strategy="sync")
    assert figures_of(slow).wall_s / figures_of(equal).wall_s == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize(
    "strategy",
    [
        "sync:server",
        *(pytest.param(s, marks=pytest.mark.full) for s in ("sync:allreduce", "async")),
    ],
)
def test_one_exchange_a_window_divides_the_bytes_by_k(tmp_path: Path, strategy: str) -> None:
    cluster = "[workers]\ncount = 2\nstep_s = 0.001\n"
    per_sample = []
    for accumulate in (1, 4):
        args = ["96", "1", str(accumulate)]
        run = trained(tmp_path, cluster, args, workers=2, strategy=strategy)
        per_sample.append(figures_of(run).bytes_per_sample)
    assert per_sample[0] / per_sample[1] == pytest.approx(4.0, rel=0.02)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_64_workers_join_make_three_steps_and_leave(tmp_path: Path) -> None:
    run = run_script(SCRIPT, [str(64 * 3)], workers=64, strategy="ssp:3", timeout_s=500)
    assert run.exit_code == 0, run.stderr[-3000:]
    read = read_run(run.out)
    assert sorted(decided_batches(read)) == list(range(64 * 3))
    assert len(read.ranks) == 64
    print(f"memory of all processes together: {read.summary['peak_pss_bytes'] / 2**20:.0f} MiB")


LINKS = """
[workers]
count = 2
step_s = 0.03
jitter = 0.2
[network]
delay_s = 0.002
jitter_s = 0.002
[[links]]
rank = 1
delay_s = 0.02
"""


@pytest.mark.timed
def test_a_cluster_with_links_takes_as_long_as_it_is_simulated_to(tmp_path: Path) -> None:
    steps = 60
    run = trained(tmp_path, LINKS, [str(2 * steps)], workers=2, strategy="ssp:3")
    cluster = ClusterModel.parse(LINKS)
    scenario = Scenario(cluster=cluster, steps=steps, network=cluster.network)
    predicted, _ = predict(parse_strategy("ssp:3"), scenario)
    assert figures_of(run).wall_s == pytest.approx(predicted.time_s, rel=0.1)
    exchange_s = [np.mean([step.pull_s + step.exchange_s for step in r.steps]) for r in run.ranks]
    assert exchange_s == pytest.approx([0.008, 0.044], abs=0.003)


def test_virtual_time_has_links_and_a_server_that_is_busy(tmp_path: Path) -> None:
    busy = LINKS.replace("[network]", "[network]\nsize_bytes = 1e6\nserver_bytes_per_s = 2e8")
    (tmp_path / "cluster.toml").write_text(busy)
    run = run_script(SCRIPT, ["60"], workers=2, strategy="async", virtual=tmp_path / "cluster.toml")
    assert run.exit_code == 0, run.stderr[-3000:]
    cluster = ClusterModel.parse(busy)
    scenario = Scenario(cluster=cluster, steps=30, network=cluster.network)
    predicted, _ = predict(parse_strategy("async"), scenario)
    assert figures_of(read_run(run.out)).wall_s == pytest.approx(predicted.time_s, abs=0.01)
