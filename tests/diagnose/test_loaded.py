"""On a machine that holds everybody up now and then, who is always slow is still named, and called so;
and the figures of one finding agree with each other."""

from __future__ import annotations

import numpy as np
import pytest

from diagnose.fabricated import Case, fabricated
from paceline.diagnose.verdict import diagnose

PLANES = ("ssp:3", "async", "server", "allreduce")


def stalls(rng, size_s, chance=0.1):
    return np.where(rng.random(100) < chance, rng.exponential(size_s, 100), 0.0)


def loaded(plane, seed, *, slower_s=0.0, size_s=0.15):
    """Four workers of 40 ms, held up in a quarter of their windows; rank 2 is always slower."""
    rng = np.random.default_rng(seed)
    phases = ("forward", "script", "optimizer" if plane == "allreduce" else "link")
    faults = [(rank, phase, stalls(rng, size_s)) for rank in range(4) for phase in phases]
    if slower_s:
        faults.append((2, "forward", np.full(100, slower_s)))
    return fabricated(Case(plane=plane, windows=100, step_s=0.04, seed=seed, faults=tuple(faults)))


@pytest.mark.parametrize("plane", PLANES)
def test_who_is_always_slow_is_called_persistent_whatever_holds_everybody_up(plane):
    right = 0
    for seed in range(5):
        findings = diagnose(loaded(plane, seed, slower_s=0.04)).findings
        assert all(one.ranks in ((), (2,)) for one in findings), "somebody else is accused"
        named = [one for one in findings if one.ranks == (2,)]
        right += [(one.phase, one.pattern) for one in named] == [("forward", "persistent")]
    assert right >= 4


@pytest.mark.parametrize("plane", PLANES)
def test_where_all_are_held_up_alike_nobody_is_accused(plane):
    for seed in range(5):
        assert not any(one.ranks for one in diagnose(loaded(plane, 50 + seed)).findings), seed


def test_its_own_hiccups_on_top_do_not_make_a_slow_worker_transient():
    rng = np.random.default_rng(1)
    faults = ((2, "forward", np.full(100, 0.04) + stalls(rng, 0.4, chance=0.08)),)
    case = Case(plane="ssp:3", windows=100, step_s=0.04, seed=1, faults=faults)
    (found,) = diagnose(fabricated(case)).findings
    assert (found.ranks, found.phase, found.pattern) == ((2,), "forward", "persistent")
    assert found.figures["slow_share"] >= 0.95
    longer_s = found.figures["own_s"] - found.figures["typical_s"]
    assert found.figures["excess_s"] == pytest.approx(longer_s, rel=0.1)


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("size_s", [0.0, 0.15])
def test_the_cost_of_a_slow_worker_is_what_the_run_would_save_without_it(plane, size_s):
    diagnosis = diagnose(loaded(plane, 3, slower_s=0.06, size_s=size_s), ["rank:2"])
    (found,) = [one for one in diagnosis.findings if one.ranks]
    without = [one.time for one in diagnosis.what_if if "rank 2" in one.change]
    assert without == [pytest.approx(1.0 - found.cost)]


def test_bursts_on_top_of_a_little_that_is_always_there_are_bursts():
    extra_s = np.full(100, 0.008)
    extra_s[20:60] += 0.08
    case = Case(plane="async", windows=100, step_s=0.04, seed=1, faults=((2, "forward", extra_s),))
    (found,) = diagnose(fabricated(case)).findings
    assert (found.ranks, found.phase, found.pattern) == ((2,), "forward", "bursty")


def test_two_slow_workers_together_cost_what_the_run_would_save_without_both():
    faults = tuple((rank, "data", np.full(100, 0.05)) for rank in (1, 3))
    diagnosis = diagnose(fabricated(Case(workers=6, windows=100, faults=faults)))
    assert sorted(one.ranks for one in diagnosis.findings) == [(1,), (3,)]
    first = diagnosis.what_if[0]
    assert first.change == "ranks 1, 3 as fast as the others"
    assert first.time == pytest.approx(1.0 - sum(one.cost for one in diagnosis.findings))


def test_a_bound_is_not_advised_to_one_who_has_a_bound():
    action = diagnose(loaded("ssp:3", 3, slower_s=0.06)).findings[0].action
    assert "No bound of SSP helps" in action
    assert "ssp:8" not in action
