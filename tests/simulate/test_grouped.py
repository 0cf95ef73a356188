"""What a simulation says of groups (hybrid), against loops that anybody would write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from paceline.errors import UsageError
from paceline.simulate.cluster import ClusterModel, Hiccups, Straggler
from paceline.simulate.links import Link, Links, OwnLink
from paceline.simulate.network import Network
from paceline.simulate.predict import SHORT_WINDOWS, Prediction, Scenario, check_pairing, predict
from paceline.simulate.scenes import scenes_of
from paceline.strategies import parse_strategy

CLUSTER = ClusterModel(
    count=6, step_s=1.0, jitter=0.3, seed=5, hiccups=Hiccups(probability=0.1, factor=4.0)
)
NETWORK = Network(
    size_bytes=1e6, seed=5,
    links=Links(
        every=Link(delay_s=0.05, jitter_s=0.1, bytes_per_s=1e7), per_node=3,
        own=(OwnLink(node=0, link=Link(delay_s=0.3)),),
    ),
)  # fmt: skip


def predicted(word: str, **scenario: object) -> Prediction:
    whole = {"cluster": CLUSTER, "steps": 40, **scenario}
    return predict(parse_strategy(word), Scenario(**whole))[0]  # type: ignore[arg-type]


def naive(accumulate: int, steps: int, network: Network | None) -> tuple[float, list[float]]:
    """Groups of three under async: (when the last window was decided, each worker's computing)."""
    windows = 4 * steps
    own_s = CLUSTER.step_times_s(windows * accumulate).reshape(6, windows, accumulate).sum(axis=2)
    now, done, spent = [0.0, 0.0], [0, 0], [0.0] * 6
    ends = []
    for _ in range(2 * steps):
        group = min((0, 1), key=lambda one: now[one])
        number, leader = done[group], 3 * group
        members = range(leader, leader + 3)
        if network is not None:
            now[group] += network.pull_s(rank=leader, number=number)
        now[group] += max(own_s[one, number] for one in members)
        if network is not None:
            now[group] += network.push_s(rank=leader, number=number)
        for one in members:
            spent[one] += own_s[one, number]
        done[group] += 1
        ends.append(now[group])
    return max(ends), spent


@pytest.mark.parametrize("network", [None, NETWORK])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_groups_against_a_loop(accumulate: int, network: Network | None) -> None:
    found = predicted("hybrid:async", accumulate=accumulate, network=network, group_size=3)
    time_s, spent_s = naive(accumulate, 40, network)
    assert found.time_s == pytest.approx(time_s, rel=1e-12)
    assert [found.time_s - one for one in found.wait_s] == pytest.approx(spent_s, rel=1e-12)
    assert found.windows_per_s * found.time_s == pytest.approx(6 * 40)
    assert 0 < found.mean_lag < 2, "two groups: about one update between pull and push"


@pytest.mark.parametrize("network", [None, NETWORK])
@pytest.mark.parametrize("outer", ["async", "ssp:2", "ssp:0"])
def test_groups_of_one_are_the_outer_strategy(outer: str, network: Network | None) -> None:
    grouped = predicted(f"hybrid:{outer}", network=network, group_size=1)
    assert replace(grouped, strategy=outer) == predicted(outer, network=network)


def test_groups_that_wait_for_each_other_take_what_sync_takes() -> None:
    grouped, sync = predicted("hybrid:ssp:0", group_size=2), predicted("sync")
    assert replace(grouped, strategy="sync") == sync
    alone = predicted("hybrid:async", group_size=6)
    assert alone.time_s == pytest.approx(sync.time_s)


def test_one_slow_member_holds_up_its_group_alone() -> None:
    even = ClusterModel(count=4, step_s=1.0, stragglers=(Straggler(rank=3, factor=3.0),))
    found = predicted("hybrid:async", cluster=even, group_size=2, steps=300)
    assert found.time_s == pytest.approx(300 * 2 / (1 + 1 / 3), rel=0.01)
    assert predicted("sync", cluster=even, steps=300).time_s == pytest.approx(900)


@pytest.mark.full
def test_long_runs_by_the_recurrence_are_short_ones_by_the_coordinator() -> None:
    steps = SHORT_WINDOWS // 2 + 1
    found = predicted("hybrid:ssp:3", steps=steps, group_size=3)
    short = predicted("hybrid:ssp:3", steps=SHORT_WINDOWS // 2, group_size=3)
    assert found.windows_per_s == pytest.approx(short.windows_per_s, rel=1e-3)
    assert found.busy == pytest.approx(short.busy, rel=1e-3)


def test_nodes_are_groups_unless_a_size_is_given() -> None:
    def sizes(**options: int) -> set[int | None]:
        return {
            one.scenario.group_size for one in scenes_of(model, steps=2, accumulate=1, **options)
        }

    model = replace(CLUSTER, network=NETWORK)
    assert sizes() == {3}
    assert sizes(group_size=2) == {2}
    model = CLUSTER
    assert sizes() == {None}


@pytest.mark.parametrize(("size", "words"), [(None, "Give --group-size"), (4, "a divisor of 6")])
def test_a_size_that_does_not_fit_is_refused(size: int | None, words: str) -> None:
    refused: list[Callable[[], object]] = [
        lambda: check_pairing(parse_strategy("hybrid:async"), 6, size),
        lambda: predicted("hybrid:async", group_size=size),
    ]
    for one in refused:
        with pytest.raises(UsageError, match=words):
            one()


def test_every_window_of_a_group_is_one_of_all_its_members() -> None:
    scenario = Scenario(cluster=CLUSTER, steps=20, group_size=3)
    _, windows = predict(parse_strategy("hybrid:async"), scenario)
    counts = np.bincount(windows.rank, minlength=6)
    assert counts.sum() == 120
    assert len(set(counts[:3])) == len(set(counts[3:])) == 1
    for group in (range(3), range(3, 6)):
        starts = [np.sort(windows.start_s[windows.rank == rank]) for rank in group]
        assert all(np.array_equal(one, starts[0]) for one in starts)
