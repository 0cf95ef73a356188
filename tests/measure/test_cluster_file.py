"""What is written is what ``simulate`` and ``--emulate`` read."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.errors import UsageError
from paceline.measure.cluster_file import cluster_toml
from paceline.measure.result import Measurement, Place, links_record, part
from paceline.measure.sentences import judge
from paceline.measure.steps import StepModel, step_model
from paceline.measure.sweep import Timing, winners
from paceline.simulate.cluster import ClusterModel

from .fabricated import measured_group

STEPS = StepModel(step_s=0.04, jitter=0.1, factors={1: 2.0}, hiccup_share=0.05, hiccup_factor=4.0)


def read_back(measured, steps=None, size_bytes=1e6):
    return ClusterModel.parse(cluster_toml(measured, judge(measured), steps, size_bytes))


def test_a_clean_group():
    model = read_back(measured_group(rates=[125e6] * 4))
    link = model.network.links.of(2)
    assert model.count == 4
    assert link.bytes_per_s == pytest.approx(125e6, rel=0.1)
    assert link.delay_s == pytest.approx(1e-4, rel=0.2)
    assert not model.network.links.own
    assert model.network.size_bytes == 1e6


def test_a_slow_port_is_that_ranks_own_link():
    model = read_back(measured_group(rates=[125e6, 125e6, 25e6, 125e6]))
    assert [one.rank for one in model.network.links.own] == [2]
    assert model.network.links.of(2).bytes_per_s == pytest.approx(25e6, rel=0.1)
    assert model.network.links.of(1).bytes_per_s == pytest.approx(125e6, rel=0.1)


def test_steps_stragglers_and_hiccups():
    model = read_back(measured_group(rates=[125e6] * 4), steps=STEPS)
    assert (model.step_s, model.jitter) == (0.04, 0.1)
    assert model.hiccups.probability == 0.05
    assert [(one.rank, one.factor) for one in model.stragglers] == [(1, 2.0)]


def test_the_fastest_all_reduce_that_can_be_simulated():
    timings = [("gloo", 0.1), ("ring", 0.4), ("halving-doubling", 0.3), ("tree", 0.5)]
    measured = replace(
        measured_group(rates=[125e6] * 4),
        timings=tuple(Timing(algorithm=a, size_bytes=1_000_000, seconds=s) for a, s in timings),
    )
    assert read_back(measured).network.algorithm == "halving-doubling"
    assert winners(list(measured.timings)) == {1_000_000: "gloo"}


def test_two_hosts_have_links_inside_and_across():
    measured = measured_group(rates=[125e6] * 4, hosts="aabb", inside=2e9)
    model = read_back(measured)
    assert model.network.links.per_node == 2
    assert model.network.links.of(0).bytes_per_s == pytest.approx(125e6, rel=0.1)
    assert model.network.inside.bytes_per_s == pytest.approx(2e9, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_step_times_come_back(seed):
    """Times that a cluster file makes give that file's numbers."""
    text = "[workers]\ncount = 4\nstep_s = 0.05\njitter = 0.2\n[hiccups]\nprobability = 0.04\nfactor = 6\n"
    text += "[[stragglers]]\nrank = 3\nfactor = 2.0\n"
    model = ClusterModel.parse(f"{text}", seed=seed)
    found = step_model(tuple(model.step_times_s(400)))
    assert found.step_s * (1 + found.jitter) == pytest.approx(0.06, rel=0.05)
    assert found.jitter == pytest.approx(0.2, rel=0.35)
    assert found.factors == {3: pytest.approx(2.0, rel=0.08)}
    assert found.hiccup_share == pytest.approx(0.04, abs=0.02)
    assert found.hiccup_factor == pytest.approx(6, rel=0.15)


def test_places_are_a_part():
    places = {"places": [{"host": "a"}, {"host": "b"}]}
    assert part(Measurement(), places).places == (Place(host="a"), Place(host="b"))


def test_links_record_is_json():
    import json

    from .fabricated import timed_pass

    record = links_record([timed_pass(np.random.default_rng(0), np.full((2, 2), 1e8), 1e-4)])
    assert len(json.loads(json.dumps(record))["links"]) == 2


def test_a_bandwidth_without_bytes_would_be_refused():
    text = cluster_toml(
        measured_group(rates=[1e8] * 2), judge(measured_group(rates=[1e8] * 2)), None, 1
    )
    with pytest.raises(UsageError, match="size_bytes"):
        ClusterModel.parse(text.replace("size_bytes = 1\n", ""))
