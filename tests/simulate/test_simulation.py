"""The recurrence and the exact driver: right by the book, and equal to the last bit."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from paceline.simulate.cluster import ClusterModel, Straggler
from paceline.simulate.driver import Costs, Work, no_costs, simulate
from paceline.simulate.late import Late, every_of
from paceline.simulate.links import Link, Links
from paceline.simulate.network import Network
from paceline.simulate.predict import Scenario, lags, predict
from paceline.simulate.recurrence import bounded, with_backups
from paceline.strategies import parse_strategy
from simulate import oracles

BOUNDS = {"sync": 0, "ssp:1": 1, "ssp:3": 3, "ssp:7": 7, "async": inf}


def random_times(rng, *, windows=30):
    workers = int(rng.integers(1, 9))
    slow = np.where(rng.random(workers) < 0.2, 4.0, 1.0)
    return (0.1 + rng.exponential(1.0, (windows, workers))) * slow


def random_ways(rng, window_s):
    """Now and then there are no links, links without jitter, or only one that delays."""
    if rng.random() < 0.3:
        return no_costs(window_s.shape)
    workers = window_s.shape[1]
    delays_s = rng.exponential(0.3, workers) * (rng.random(workers) < 0.7)
    jitter_s = rng.choice([0.0, 0.2])
    push_s, pull_s = (delays_s + jitter_s * rng.exponential(1.0, window_s.shape) for _ in range(2))
    return Costs(push_s=push_s, pull_s=pull_s)


@pytest.mark.parametrize("word", BOUNDS)
def test_the_recurrence_is_the_definition_to_the_last_bit(word):
    rng = np.random.default_rng(1)
    for _ in range(30):
        window_s = random_times(rng)
        ways_s = random_ways(rng, window_s)
        ours = bounded(window_s, BOUNDS[word], push_s=ways_s.push_s, pull_s=ways_s.pull_s)
        lists = [one_s.T.tolist() for one_s in (window_s, ways_s.push_s, ways_s.pull_s)]
        assert ours.finish_s.T.tolist() == oracles.ssp(lists[0], BOUNDS[word], *lists[1:])


def test_recurrence_and_exact_driver_agree_to_the_last_bit_on_500_random_clusters():
    rng = np.random.default_rng(2)
    for trial in range(500):
        word = list(BOUNDS)[trial % len(BOUNDS)]
        window_s = random_times(rng, windows=int(rng.integers(1, 25)))
        windows, workers = window_s.shape
        joint = (
            word == "sync"
        )  # its rounds are dealt; elsewhere each worker gets so many of its own
        work = Work(windows=windows * workers if joint else windows, shared=joint)
        ways_s = random_ways(rng, window_s)
        exact = simulate(parse_strategy(word), window_s, work, ways_s)
        ours = bounded(window_s, BOUNDS[word], push_s=ways_s.push_s, pull_s=ways_s.pull_s)
        for rank in range(workers):
            own = exact.rank == rank
            assert np.sort(exact.end_s[own]).tolist() == ours.finish_s[:, rank].tolist(), word


def test_backup_rounds_are_those_of_the_definition_and_of_the_exact_driver():
    rng = np.random.default_rng(3)
    for _ in range(100):
        window_s = random_times(rng, windows=60)
        workers = window_s.shape[1]
        spares = int(rng.integers(1, workers)) if workers > 1 else 0
        rounds = 15
        times = with_backups(window_s, spares)
        decided_s = [row[~np.isnan(row)].min() for row in times.decided_s[:rounds]]
        assert decided_s == oracles.backup(window_s.T.tolist(), spares, rounds)
        if spares:
            strategy = parse_strategy(f"backup:{spares}")
            exact = simulate(strategy, window_s, Work(windows=rounds * workers))
            ends_s = np.sort(exact.end_s[exact.applied])[: rounds * (workers - spares) // 2]
            ours_s = np.sort(times.finish_s[times.applied])[: len(ends_s)]
            assert ends_s.tolist() == ours_s.tolist()


def test_version_lags_are_those_of_the_exact_driver():
    rng = np.random.default_rng(4)
    for word, bound in (("ssp:1", 1), ("ssp:3", 3), ("async", inf)):
        window_s = 0.5 + rng.exponential(1.0, (40, 5))
        ways_s = Costs(push_s=rng.random((40, 5)), pull_s=rng.random((40, 5)))
        exact = simulate(parse_strategy(word), window_s, Work(windows=40, shared=False), ways_s)
        ours = lags(bounded(window_s, bound, push_s=ways_s.push_s, pull_s=ways_s.pull_s))
        for rank in range(5):
            own = np.flatnonzero(exact.rank == rank)
            assert exact.lag[own[np.argsort(exact.end_s[own])]].tolist() == ours[:, rank].tolist()


def test_always_busy_workers_have_a_mean_lag_of_n_minus_one_even_in_lockstep():
    cluster = ClusterModel(count=16, step_s=1.0)
    prediction, _ = predict(parse_strategy("async"), Scenario(cluster=cluster, steps=400))
    assert prediction.mean_lag == pytest.approx(15, rel=0.03)


UTILISATION = [
    # strategy, pattern, share of the time spent on applied work (FORMULAS of the design; per cent)
    ("sync", "same", 26.2), ("sync", "every:50", 26.2), ("sync", "random", 26.2),
    ("ssp:3", "same", 26.2), ("ssp:3", "every:50", 28.0), ("ssp:3", "random", 80.0),
    ("async", "same", 100.0), ("async", "every:50", 100.0), ("async", "random", 100.0),
    ("backup:2", "same", 98.4),
]  # fmt: skip


@pytest.mark.parametrize(("word", "pattern", "expected"), UTILISATION)
def test_two_of_128_late_by_three_steps(word, pattern, expected):
    late = Late(count=2, added_s=3.0, every=every_of(pattern))
    cluster = ClusterModel(count=128, step_s=1.0, late=late)
    prediction, _ = predict(parse_strategy(word), Scenario(cluster=cluster, steps=2000))
    assert 100 * prediction.busy == pytest.approx(expected, abs=1.5)
    if word.startswith("s"):  # a naive loop comes to the same, over fewer steps
        window_s = cluster.step_times_s(200).tolist()
        finish = oracles.ssp(window_s, BOUNDS[word])
        assert 100 * oracles.busy_share(finish, window_s) == pytest.approx(expected, abs=2.5)
    if word == "sync":
        assert 100 * prediction.useful == pytest.approx(25.0, abs=0.5)


def test_late_workers_that_change_are_out_of_several_rounds_of_backup():
    """If a late push could be called off there would be 98 %; a worker that computes cannot hear it."""
    late = Late(count=2, added_s=3.0)
    cluster = ClusterModel(count=128, step_s=1.0, late=late)
    scenario = Scenario(cluster=cluster, steps=300)
    prediction, _ = predict(parse_strategy("backup:2"), scenario)
    window_s = cluster.step_times_s(310)
    decided = oracles.backup(window_s.tolist(), 2, 300)
    assert prediction.time_s / 300 == pytest.approx(decided[-1] / 300, rel=0.03)
    called_off = np.sort(window_s, axis=0)[125].mean()
    assert called_off == pytest.approx(1.0)
    assert prediction.busy < 0.5


def test_one_of_eight_slow_by_a_third_makes_sync_so_much_slower():
    slow = ClusterModel(count=8, step_s=1.0, stragglers=(Straggler(rank=5, factor=1.3),))
    even = ClusterModel(count=8, step_s=1.0)
    times = [
        predict(parse_strategy("sync"), Scenario(cluster=one, steps=100))[0].time_s
        for one in (slow, even)
    ]
    assert times[0] / times[1] == pytest.approx(1.30)


def test_an_epoch_of_async_does_not_last_as_long_as_its_slowest_worker():
    slow = ClusterModel(count=8, step_s=1.0, stragglers=(Straggler(rank=0, factor=4.0),))
    prediction, _ = predict(parse_strategy("async"), Scenario(cluster=slow, steps=200))
    assert prediction.time_s / 200 == pytest.approx(8 / 7.25, rel=0.02)
    assert prediction.efficiency == pytest.approx(1.0, abs=0.02)


def test_an_all_reduce_is_added_to_every_round_and_links_to_every_push():
    link = Link(delay_s=0.001, bytes_per_s=1e9)
    network = Network(size_bytes=1e8, links=Links(every=link))
    scenario = Scenario(cluster=ClusterModel(count=4, step_s=1.0), steps=50, network=network)
    ring_s = 6 * 0.001 + 6 / 4 * 0.1
    sync, _ = predict(parse_strategy("sync:allreduce"), scenario)
    assert sync.time_s == pytest.approx(50 * (1 + ring_s))
    server, _ = predict(parse_strategy("sync:server"), scenario)
    assert server.time_s == pytest.approx(50 * (1 + 2 * 0.101), rel=0.01)
    asynchronous, _ = predict(parse_strategy("async"), scenario)
    assert asynchronous.time_s == pytest.approx(50 * 1.202, rel=0.01)
    assert asynchronous.mean_lag == pytest.approx(3, abs=0.2)


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_a_server_is_the_bottleneck_from_where_its_own_time_says(shards):
    network = Network(size_bytes=1e8, server_bytes_per_s=1e9, shards=shards)
    cluster = ClusterModel(count=64, step_s=1.0, jitter=0.1)
    prediction, _ = predict(
        parse_strategy("async"), Scenario(cluster=cluster, steps=30, network=network)
    )
    assert prediction.windows_per_s == pytest.approx(shards / 0.2, rel=0.05)


def test_costs_of_nothing_change_nothing():
    window_s = random_times(np.random.default_rng(5))
    costs = Costs(pull_s=np.zeros(window_s.shape), push_s=np.zeros(window_s.shape))
    strategy = parse_strategy("ssp:3")
    work = Work(windows=20, shared=False)
    assert (
        simulate(strategy, window_s, work).end_s.tolist()
        == simulate(strategy, window_s, work, costs).end_s.tolist()
    )
