"""Figures of runs small enough to work out by hand."""

import math

import pytest

from paceline import trace
from paceline.compare.figures import against, figures_of, slower_than_one
from paceline.compare.phases import phases_of, windows
from paceline.compare.target import parse_target
from paceline.errors import UsageError
from paceline.runs import read_run
from synthetic_runs import Ring, setup, simulated_run, step, write_run


def ended(time_s, *, started_s=100.0, version=2):
    return trace.Pass(
        time_s=time_s, pass_id=0, started_s=started_s, version=version, progress=2, skipped=0
    )


def two_worker_run(directory, topology="server"):
    """Worker 0 computes for 3 s, worker 1 for 1 s and then waits; both exchange for 0.5 s."""
    quick = {"pull_s": 0.0, "data_s": 0.0, "forward_s": 0.0}
    waited = {"wait_s": 2.0, "exchange_s": 0.5}
    if topology == "allreduce":
        waited = {"wait_s": 0.0, "exchange_s": 2.5}
    slow = step(**quick, backward_s=3.0, exchange_s=0.5, weight=30.0)
    fast = step(**quick, backward_s=1.0, **waited, weight=10.0)
    head = setup(world_size=2, topology=topology, strategy="sync")
    return write_run(
        directory,
        {0: [head, slow, ended(103.5, version=1)], 1: [head, fast, ended(103.5, version=1)]},
        summary={"peak_pss_bytes": 5_000_000},
    )


@pytest.mark.parametrize("topology", ["server", "allreduce"])
def test_waiting_is_told_from_exchanging_on_both_planes(tmp_path, topology):
    figures = figures_of(read_run(two_worker_run(tmp_path, topology)))
    assert figures.compute_share == pytest.approx(4 / 7)
    assert figures.wait_share == pytest.approx(2 / 7)
    assert figures.exchange_share == pytest.approx(1 / 7)
    assert figures.other_share == pytest.approx(0.0)


def test_encoding_is_neither_exchanging_nor_waiting(tmp_path):
    """Rank 1 encodes for 3 ms, rank 0 for 2; moving takes 1 ms; all under one all-reduce."""
    ranks = {
        rank: [setup(topology="allreduce", world_size=2),
               step(pull_s=0.0, exchange_s=0.004, coding_s=coding_s)]
        for rank, coding_s in ((0, 0.002), (1, 0.003))
    }  # fmt: skip
    run = read_run(write_run(tmp_path / "run", ranks))
    timed = windows(run)
    parts = [phases_of(rank, timed[rank.rank]) for rank in run.ranks]
    assert [part.coding for part in parts] == pytest.approx([0.002, 0.003])
    assert [part.exchange for part in parts] == pytest.approx([0.001, 0.001])
    assert [part.wait for part in parts] == pytest.approx([0.001, 0.0])
    assert figures_of(run).coding_share > 0


def test_speed_size_and_traffic(tmp_path):
    figures = figures_of(read_run(two_worker_run(tmp_path)))
    assert figures.wall_s == pytest.approx(3.5)
    assert figures.samples == 40.0
    assert figures.samples_per_s == pytest.approx(40 / 3.5)
    assert figures.effective_batch == 40.0
    assert (figures.updates, figures.samples_per_update) == (1, 40.0)
    assert figures.bytes_per_sample == pytest.approx(16_000 / 40)
    assert figures.peak_bytes == 5_000_000


def test_replicas_step_on_their_own_samples(tmp_path):
    head = setup(world_size=2, topology="replicas", strategy="local:8")
    own = step(weight=16.0, version=0)
    write_run(tmp_path, {r: [head, own, ended(103.5, version=1)] for r in (0, 1)})
    figures = figures_of(read_run(tmp_path))
    assert (figures.updates, figures.samples_per_update) == (1, 16.0)
    assert figures.effective_batch == 32.0


def test_waiting_counts_before_a_window_and_after_the_last_one_of_a_pass(tmp_path):
    gated = step(time_s=101.5, gate_s=1.0, pull_s=0.5, data_s=0.25, forward_s=0.0, backward_s=1.0,
                 exchange_s=0.25)  # fmt: skip
    write_run(tmp_path, {0: [setup(), gated, ended(107.0)]})
    run = read_run(tmp_path)
    (own,) = windows(run).values()
    phases = phases_of(run.ranks[0], own)
    assert own[0].end_s == 103.0
    assert phases.wait == pytest.approx(1.0 + 4.0)
    assert phases.exchange == pytest.approx(0.75)
    assert (phases.data, phases.compute) == (0.25, 1.0)
    assert phases.total == pytest.approx(7.0)


def test_a_pass_that_still_runs_counts_as_far_as_it_has_come(tmp_path):
    write_run(tmp_path, {0: [setup(), ended(100.0), step(time_s=101.0), step(time_s=102.0)]})
    run = read_run(tmp_path)
    (own,) = windows(run).values()
    assert phases_of(run.ranks[0], own).total == pytest.approx(1.034)
    assert figures_of(run).compute_share > 0


def test_pushes_that_were_not_applied_are_lost_and_their_samples_do_not_count(tmp_path):
    dropped = step(applied=False, clock=1, lag=9, time_s=101.0)
    write_run(tmp_path, {0: [setup(), step(lag=3), dropped]})
    figures = figures_of(read_run(tmp_path))
    assert (figures.samples, figures.lost_pushes) == (32.0, 1)
    assert (figures.lag_mean, figures.lag_max) == ((3.0,), (3,))


def test_short_last_windows_do_not_change_the_effective_batch(tmp_path):
    steps = [step(clock=k, time_s=100.0 + k, weight=w) for k, w in enumerate([32, 32, 32, 5])]
    write_run(tmp_path, {0: [setup(), *steps]})
    assert figures_of(read_run(tmp_path)).effective_batch == 32.0


def test_speed_up_is_for_equal_samples_and_slower_than_one_worker_is_noticed(tmp_path):
    one = figures_of(read_run(simulated_run(tmp_path / "1", Ring(workers=1, hiccup=0))))
    four = figures_of(read_run(simulated_run(tmp_path / "4", Ring(workers=4, hiccup=0))))
    slow = Ring(workers=4, hiccup=0, staleness=0, slow={1: 5.0})
    crawling = figures_of(read_run(simulated_run(tmp_path / "slow", slow)))
    assert against(four, one).speed_up == pytest.approx(4.0, rel=1e-3)
    assert against(four, one).efficiency == pytest.approx(1.0, rel=1e-3)
    assert not slower_than_one(against(four, one))
    assert against(crawling, one).speed_up < 1
    assert slower_than_one(against(crawling, one))


def test_the_time_to_a_target_counts_from_the_first_window(tmp_path):
    values = [(101.0, 0.5), (104.0, 0.96), (105.0, 0.9)]
    metrics = [
        trace.Metric(time_s=t, name="accuracy", value=v, version=0, samples=0) for t, v in values
    ]
    write_run(tmp_path, {0: [setup(), step(), *metrics]})
    run = read_run(tmp_path)
    assert figures_of(run, parse_target("accuracy=0.95")).target_s == pytest.approx(4.0)
    assert figures_of(run, parse_target("accuracy=0.97")).target_s is None
    assert figures_of(run).metrics == {"accuracy": 0.9}


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("accuracy=0.97", "accuracy >= 0.97"),
        ("loss=0.3", "loss <= 0.3"),
        ("val/loss <= 3e-1", "val/loss <= 0.3"),
        ("loss>=2", "loss >= 2"),
    ],
)
def test_targets_say_which_side_counts(text, printed):
    assert str(parse_target(text)) == printed


@pytest.mark.parametrize("text", ["accuracy", "accuracy=", "=0.9", "accuracy=high"])
def test_a_target_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="target="):
        parse_target(text)


@pytest.mark.parametrize("staleness", [0, 1, 3, math.inf])
def test_phases_of_a_simulated_run_add_up_to_its_time(tmp_path, staleness):
    run = read_run(simulated_run(tmp_path, Ring(staleness=staleness, seed=3)))
    timed = windows(run)
    start_s = min(step.time_s for rank in run.ranks for step in rank.steps)
    for rank in run.ranks:
        total = phases_of(rank, timed[rank.rank]).total
        assert total == pytest.approx(rank.passes[0].time_s - start_s, abs=0.01)
