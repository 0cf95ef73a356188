"""Links: each way takes what the file says, anew each time, and the same whoever asks."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

from paceline.cost import Hop, hierarchical, ring
from paceline.errors import UsageError
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.links import Link, Links, OwnLink
from paceline.simulate.network import Network
from paceline.simulate.predict import SHORT_WINDOWS, Scenario, predict
from paceline.simulate.scenes import scenes_of
from paceline.strategies import parse_strategy
from simulate import oracles

FULL = """
[workers]
count = 4
step_s = 1.0
jitter = 0.2
seed = 7

[network]
size_bytes = 1e6
delay_s = 0.1
jitter_s = 0.05
bytes_per_s = 1e7
per_node = 2

[[links]]
node = 1
bytes_per_s = 1e6

[[links]]
rank = 2
delay_s = 0.3
jitter_s = 0.0
"""


def test_a_file_says_whose_links_are_how():
    links = network().links
    assert links.of(0) == links.of(1) == Link(delay_s=0.1, jitter_s=0.05, bytes_per_s=1e7)
    assert links.of(3) == Link(delay_s=0.1, jitter_s=0.05, bytes_per_s=1e6)
    assert links.of(2) == Link(delay_s=0.3, jitter_s=0.0, bytes_per_s=1e7)
    assert links.highest_rank == 2


def test_one_call_and_the_whole_array_agree_to_the_last_bit():
    model = network()
    pushes_s = model.push_times_s(workers=4, windows=600)
    pulls_s = model.pull_times_s(workers=4, windows=600)
    rounds_s = model.all_reduce_times_s(workers=4, rounds=600)
    assert pushes_s.shape == pulls_s.shape == (600, 4)
    for number in (0, 1, 255, 256, 599):
        for rank in range(4):
            assert model.push_s(rank=rank, number=number) == pushes_s[number, rank]
            assert model.pull_s(rank=rank, number=number) == pulls_s[number, rank]
        assert model.all_reduce_s(workers=4, number=number) == rounds_s[number]


def test_a_way_takes_delay_jitter_and_size_over_bandwidth():
    model = network()
    pushes_s = model.push_times_s(workers=4, windows=20_000)
    pulls_s = model.pull_times_s(workers=4, windows=20_000)
    assert np.ptp(pushes_s[:, 2]) == 0.0
    assert pushes_s[0, 2] == pytest.approx(0.3 + 0.1)
    for times_s in (pushes_s, pulls_s):
        assert times_s[:, 0].min() == pytest.approx(0.1 + 0.1, abs=1e-4)
        assert times_s[:, 0].mean() == pytest.approx(0.1 + 0.05 + 0.1, rel=0.02)
        assert times_s[:, 3].std() == pytest.approx(0.05, rel=0.05)
    draws = np.stack([pushes_s[:, 0], pushes_s[:, 1], pulls_s[:, 0], pulls_s[:, 1]])
    assert np.abs(np.corrcoef(draws) - np.eye(4)).max() < 0.03


def test_links_leave_the_steps_alone():
    with_links = ClusterModel.parse(FULL).step_times_s(300)
    without = ClusterModel.parse(FULL.split("[network]")[0]).step_times_s(300)
    assert with_links.tolist() == without.tolist()


def test_an_all_reduce_is_as_fast_as_the_slowest_link():
    slow = OwnLink(rank=1, link=Link(bytes_per_s=1e6, delay_s=0.002))
    links = Links(every=Link(bytes_per_s=1e7, delay_s=0.001), own=(slow,))
    took_s = Network(size_bytes=1e6, links=links).all_reduce_s(workers=4, number=0)
    assert took_s == pytest.approx(2 * 3 * 0.002 + 2 * 3 / 4 * 1.0)
    assert Network(size_bytes=1e6, links=links).all_reduce_s(workers=1, number=0) == 0.0


def test_the_jitter_of_a_collective_is_the_worst_of_its_workers():
    """Of N exponentials the largest has mean H_N (FORMULAS of the design)."""
    links = Links(every=Link(jitter_s=0.1))
    model = Network(size_bytes=1.0, links=links, algorithm="tree")
    rounds_s = model.all_reduce_times_s(workers=8, rounds=20_000)
    harmonic = sum(1 / n for n in range(1, 9))
    assert rounds_s.mean() == pytest.approx(2 * log2(8) * 0.1 * harmonic, rel=0.02)


def test_a_hierarchical_all_reduce_crosses_nodes_with_a_share_of_the_bytes():
    inside, across = Hop(bytes_per_s=1e10, latency_s=1e-6), Hop(bytes_per_s=1e9, latency_s=1e-4)
    took_s = hierarchical(16, 8, 1e9, across=across, inside=inside)
    scatter_s = gather_s = 7 * 1e-6 + 7 / 8 * 0.1
    assert took_s == pytest.approx(scatter_s + ring(16, 1e9 / 8, 1e9, 1e-4) + gather_s)
    text = (
        "[workers]\ncount = 128\nstep_s = 1.0\n[network]\nsize_bytes = 1e9\ndelay_s = 1e-4\n"
        "bytes_per_s = 1e9\nalgorithm = 'hierarchical'\nper_node = 8\n"
        "inside_bytes_per_s = 1e10\ninside_delay_s = 1e-6\n"
    )
    model = ClusterModel.parse(text).network
    assert model.all_reduce_s(workers=128, number=3) == took_s


@pytest.mark.parametrize(
    ("word", "bound"), [("sync:server", 0), ("ssp:1", 1), ("ssp:3", 3), ("async", float("inf"))]
)
def test_a_prediction_is_what_a_naive_loop_says(word, bound):
    cluster, steps = ClusterModel.parse(FULL), SHORT_WINDOWS // 4 + 1
    scenario = Scenario(cluster=cluster, steps=steps, network=cluster.network)
    prediction, _ = predict(parse_strategy(word), scenario)
    more = 2 * steps
    lists = (cluster.step_times_s(more), cluster.network.push_times_s(workers=4, windows=more).T)
    pull_s = cluster.network.pull_times_s(workers=4, windows=more).T.tolist()
    window_s, push_s = (one_s.tolist() for one_s in lists)
    finish = oracles.ssp(window_s, bound, push_s, pull_s)
    pairs = [(own[k] + push_s[i][k], i, k) for i, own in enumerate(finish) for k in range(more)]
    done = sorted(pairs)[: steps * 4]
    assert prediction.time_s == done[-1][0], "bit for bit"
    busy_s = sum(window_s[i][k] for _, i, k in done)
    assert prediction.busy == pytest.approx(busy_s / (4 * prediction.time_s), rel=1e-12)


def test_plain_sync_is_an_all_reduce_where_there_is_a_network():
    cluster = ClusterModel.parse(FULL)
    times_s = {
        word: predict(
            parse_strategy(word), Scenario(cluster=cluster, steps=20, network=cluster.network)
        )[0].time_s
        for word in ("sync", "sync:allreduce", "sync:server")
    }
    assert times_s["sync"] == times_s["sync:allreduce"] != times_s["sync:server"]


def test_a_sweep_keeps_the_links_and_refuses_too_few_workers():
    cluster = ClusterModel.parse(FULL)
    (scene,) = scenes_of(cluster, steps=5, accumulate=1, workers=[64])
    assert scene.scenario.network.push_s(rank=2, number=0) == pytest.approx(0.4)
    with pytest.raises(UsageError, match="more than 2"):
        list(scenes_of(cluster, steps=5, accumulate=1, workers=[2]))


WORKERS = "[workers]\ncount = 4\nstep_s = 1.0\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[network]\ndelay_s = -1", "delay_s=-1: expected a number >= 0"),
        ("[network]\nlatency = 1", "expected size_bytes, delay_s"),
        ("[network]\nbytes_per_s = 1e9", "no size_bytes: give the parameters' bytes"),
        ("[network]\nsize_bytes = 1e6\nbytes_per_s = 0", "bytes_per_s=0"),
        ("[network]\nalgorithm = 'star'", "ring, halving-doubling, tree, hierarchical"),
        ("[[links]]\ndelay_s = 1", "either rank or node"),
        ("[[links]]\nrank = 1\nnode = 0\ndelay_s = 1", "not both"),
        ("[[links]]\nrank = 4\ndelay_s = 1", "rank=4"),
        ("[network]\nper_node = 2\n[[links]]\nnode = 2\ndelay_s = 1", "node=2"),
        ("[[links]]\nrank = 1\nbytes_per_s = 1e6", "[[links]] has a bandwidth"),
        ("[links]\nrank = 1\ndelay_s = 1", "each written [[links]]"),
    ],
)
def test_a_mistake_is_refused_by_name(text, said):
    with pytest.raises(UsageError) as caught:
        ClusterModel.parse(WORKERS + text)
    assert said in str(caught.value)


def network() -> Network:
    found = ClusterModel.parse(FULL).network
    assert found is not None
    return found


@pytest.mark.parametrize("word", ["sync", "sync:server", "ssp:3", "async"])
def test_a_worker_alone_exchanges_nothing(word):
    cluster = ClusterModel.parse(FULL.replace("count = 4", "count = 1").split("[[links]]")[0])
    scenario = Scenario(cluster=cluster, steps=9, network=cluster.network)
    prediction, _ = predict(parse_strategy(word), scenario)
    assert prediction.time_s == pytest.approx(cluster.step_times_s(9).sum())


def test_a_link_described_twice_is_refused(tmp_path):
    file = tmp_path / "cluster.toml"
    for key in ("rank", "node"):
        one = f"[[links]]\n{key} = 1\ndelay_s = 0.01\n"
        file.write_text(f"[workers]\ncount = 4\nstep_s = 0.1\n[network]\ndelay_s = 0.0\n{one}{one}")
        with pytest.raises(UsageError, match=f"each {key} once"):
            ClusterModel.load(file)


@pytest.mark.parametrize("late", ["", '[late]\ncount = 1\nadded_s = 1e308\npattern = "random"\n'])
@pytest.mark.filterwarnings("error")
def test_absurd_times_are_refused_in_a_sentence_without_numpys_warnings(tmp_path, late):
    file = tmp_path / "cluster.toml"
    network = "" if late else "[network]\ndelay_s = 1e308\njitter_s = 1e308\n"
    file.write_text(f"[workers]\ncount = 4\nstep_s = 0.1\n{network}{late}")
    scene = next(iter(scenes_of(ClusterModel.load(file), steps=1000, accumulate=1)))
    with pytest.raises(UsageError, match="between 1 ns and 30 years"):
        predict(parse_strategy("sync"), scene.scenario)
