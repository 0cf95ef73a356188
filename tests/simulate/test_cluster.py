"""The cluster model: exact, reproducible times, and a file format that refuses mistakes by name."""

from __future__ import annotations

import time

import numpy as np
import pytest

from paceline.errors import UsageError
from paceline.simulate.cluster import Burst, ClusterModel, Hiccups, Straggler
from paceline.simulate.late import Late

FULL = """
[workers]
count = 4
step_s = 0.05
jitter = 0.1
seed = 7

[hiccups]
probability = 0.05
factor = 3

[[stragglers]]
rank = 2
factor = 4.0

[[stragglers]]
rank = 3
added_s = 0.1

[[bursts]]
rank = 0
start = 250
length = 20
factor = 2.0

[late]
count = 2
added_s = 0.5
pattern = "every:7"
"""


def test_a_file_says_everything(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(FULL)
    assert ClusterModel.load(path) == ClusterModel(
        count=4,
        step_s=0.05,
        jitter=0.1,
        seed=7,
        hiccups=Hiccups(probability=0.05, factor=3.0),
        stragglers=(Straggler(rank=2, factor=4.0), Straggler(rank=3, added_s=0.1)),
        bursts=(Burst(rank=0, start=250, length=20, factor=2.0),),
        late=Late(count=2, added_s=0.5, every=7),
    )
    assert ClusterModel.load(path, seed=9).seed == 9


def test_one_call_and_the_whole_array_agree_to_the_last_bit():
    model = ClusterModel.parse(FULL)
    times_s = model.step_times_s(600)
    assert times_s.shape == (4, 600)
    for rank in range(4):
        singly = [model.step_time_s(rank=rank, step=step) for step in range(600)]
        assert singly == times_s[rank].tolist()


def test_a_time_depends_on_seed_rank_and_step_alone():
    model = ClusterModel.parse(FULL)
    late_first = model.step_time_s(rank=1, step=1000)
    assert model.step_time_s(rank=1, step=3) == ClusterModel.parse(FULL).step_times_s(10)[1, 3]
    assert model.step_time_s(rank=1, step=1000) == late_first
    assert model.step_times_s(5).tolist() == model.step_times_s(300)[:, :5].tolist()
    other = ClusterModel.parse(FULL, seed=8)
    assert other.step_time_s(rank=1, step=1000) != late_first


def test_the_distribution_is_the_one_described():
    model = ClusterModel.parse(FULL)
    times_s = model.step_times_s(50_000)
    for rank in range(4):
        assert times_s[rank].mean() == pytest.approx(model.mean_step_s(rank), rel=0.02)
    calm = ClusterModel(count=2, step_s=1.0, jitter=0.1).step_times_s(50_000)
    assert calm.min() >= 1.0
    assert (calm - 1.0).std() == pytest.approx(0.1, rel=0.05)
    assert abs(np.corrcoef(calm)[0, 1]) < 0.02


def test_hiccups_and_stragglers_multiply_exactly():
    plain = ClusterModel(count=2, step_s=0.5)
    assert plain.step_times_s(3).tolist() == [[0.5] * 3] * 2
    always = ClusterModel(count=2, step_s=0.5, hiccups=Hiccups(probability=1.0, factor=3.0))
    assert always.step_times_s(2).tolist() == [[1.5, 1.5]] * 2
    slow = ClusterModel(count=2, step_s=0.5, stragglers=(Straggler(rank=1, factor=4.0),))
    assert slow.step_times_s(1).tolist() == [[0.5], [2.0]]


def test_a_burst_is_slow_from_its_start_for_its_length():
    burst = Burst(rank=1, start=2, length=3, factor=5.0)
    times_s = ClusterModel(count=2, step_s=1.0, bursts=(burst,)).step_times_s(7)
    assert times_s.tolist() == [[1.0] * 7, [1, 1, 5, 5, 5, 1, 1]]


def test_so_many_are_late_in_every_step_and_change_when_the_pattern_says():
    for every, changes in ((None, 0), (10, 3), (1, 39)):
        late = Late(count=2, added_s=3.0, every=every)
        slow = ClusterModel(count=6, step_s=1.0, seed=1, late=late).step_times_s(40) == 4.0
        assert slow.sum(axis=0).tolist() == [2] * 40
        assert 0 <= (slow[:, 1:] != slow[:, :-1]).any(axis=0).sum() <= changes
        assert every is None or slow.any(axis=1).sum() > 2


def test_no_steps_are_no_times():
    assert ClusterModel(count=3, step_s=1.0).step_times_s(0).shape == (3, 0)


def test_a_call_costs_less_than_twenty_microseconds():
    model = ClusterModel.parse(FULL)
    steps = 5_000
    started_s = time.process_time()
    for step in range(steps):
        model.step_time_s(rank=2, step=step)
    assert (time.process_time() - started_s) / steps <= 20e-6


WORKERS = "[workers]\ncount = 2\nstep_s = 1.0\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the table [workers] is missing"),
        ("[workers]\ncount = 2", "[workers] needs 'step_s'"),
        ("[workers]\ncount = 2\nstep = 1.0", "Did you mean 'step_s'?"),
        ("[workers]\ncount = 0\nstep_s = 1.0", "count=0: expected a whole number >= 1"),
        ("[workers]\ncount = 2.5\nstep_s = 1.0", "count=2.5: expected a whole number"),
        ("[workers]\ncount = true\nstep_s = 1.0", "count=True"),
        ("[workers]\ncount = 2\nstep_s = 0", "step_s=0: expected a number > 0"),
        ("[workers]\ncount = 2\nstep_s = nan", "step_s=nan"),
        ("[workers]\ncount = 2\nstep_s = '1'", "step_s='1': expected a number"),
        (WORKERS + "jitter = -0.1", "jitter=-0.1: expected a number >= 0"),
        (WORKERS + "[hiccups]\nprobability = 1.5\nfactor = 2", "probability=1.5"),
        (WORKERS + "[hiccups]\nprobability = 0.5", "[hiccups] needs 'factor'"),
        (
            WORKERS + "[hiccups]\nprobability = 0.5\nfactor = 0.5",
            "factor=0.5: expected a number >= 1",
        ),
        (WORKERS + "[hickups]\nfactor = 1", "Did you mean 'hiccups'?"),
        (WORKERS + "[stragglers]\nrank = 1", "each written [[stragglers]]"),
        (
            WORKERS + "[[stragglers]]\nrank = 2\nfactor = 2",
            "rank=2: expected a whole number >= 0 and <= 1",
        ),
        (WORKERS + "[[stragglers]]\nrank = 1", "either factor"),
        (WORKERS + "[[stragglers]]\nrank = 1\nfactor = 2\nadded_s = 1", "not both"),
        (WORKERS + 2 * "[[stragglers]]\nrank = 1\nfactor = 2\n", "each rank once"),
        (WORKERS + "[[bursts]]\nrank = 1\nstart = 2\nlength = 0\nfactor = 2", "length=0"),
        (WORKERS + "[late]\ncount = 3\nadded_s = 1", "count=3"),
        (WORKERS + "[late]\ncount = 1\nadded_s = 1\npattern = 'often'", "pattern='often'"),
        (WORKERS + "[network]\nsize_bytes = 1\nalgorithm = 'star'", "algorithm='star'"),
        ("[workers", "not valid TOML"),
    ],
)
def test_a_mistake_is_refused_by_name(text, said):
    with pytest.raises(UsageError) as caught:
        ClusterModel.parse(text)
    assert said in str(caught.value)
    assert "cluster.toml" in str(caught.value)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"absent\.toml"):
        ClusterModel.load(tmp_path / "absent.toml")


def test_a_rank_beyond_the_cluster_is_refused():
    with pytest.raises(UsageError, match="describes 2 workers"):
        ClusterModel(count=2, step_s=1.0).step_time_s(rank=2, step=0)
