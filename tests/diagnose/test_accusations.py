"""Known causes of many sizes are named with rank and phase; runs in which nobody is at fault accuse nobody."""

from __future__ import annotations

import numpy as np
import pytest

from diagnose.fabricated import PHASES, Case, added, fabricated
from paceline.diagnose.verdict import diagnose

WORDS = {
    "data": "data loading", "forward": "forward", "backward": "backward", "optimizer": "optimizer",
    "script": "own code between steps", "link": "link",
}  # fmt: skip
NOT_THERE = {"allreduce": ("link",), "server": ("optimizer",), "async": ("optimizer",)}
SIZES_S = {"persistent": (0.02, 0.3), "bursty": (0.06, 0.4), "transient": (0.1, 0.4)}


def drawn(rng, plane):
    """(case, rank, phase, pattern) with one worker at fault; a step takes 50 ms."""
    workers = int(rng.choice([2, 4, 8] if plane != "async" else [2, 4]))
    phase = str(rng.choice([name for name in PHASES if name not in NOT_THERE[plane]]))
    pattern, rank = str(rng.choice(list(SIZES_S))), int(rng.integers(workers))
    low, high = SIZES_S[pattern]
    size_s = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    fault = (rank, phase, added(rng, pattern, size_s, 160))
    seed = int(rng.integers(1_000_000))
    case = Case(workers=workers, plane=plane, windows=160, seed=seed, faults=(fault,))
    return case, rank, phase, pattern


@pytest.mark.parametrize("plane", ["allreduce", "server", "async"])
def test_the_worker_at_fault_is_named_with_its_phase(plane):
    rng = np.random.default_rng(5)
    right = patterns = 0
    for _ in range(25):
        case, rank, phase, pattern = drawn(rng, plane)
        found = diagnose(fabricated(case)).findings
        hit = bool(found) and (found[0].ranks, found[0].phase) == ((rank,), WORDS[phase])
        right += hit
        patterns += hit and found[0].pattern == pattern
        assert all(one.ranks in ((), (rank,)) for one in found), "somebody else is accused"
    assert right >= 23
    assert patterns >= 0.9 * right


@pytest.mark.parametrize("plane", ["allreduce", "server", "async"])
def test_nobody_is_accused_where_nobody_is_at_fault(plane):
    rng = np.random.default_rng(6)
    for _ in range(25):
        case = Case(
            workers=int(rng.choice([2, 4, 8])), plane=plane, windows=int(rng.choice([40, 160])),
            jitter=float(rng.choice([0.0, 0.05, 0.1, 0.2])), hiccup=float(rng.choice([0.0, 0.03])),
            seed=int(rng.integers(1_000_000)),
        )  # fmt: skip
        diagnosis = diagnose(fabricated(case))
        assert not any(one.ranks for one in diagnosis.findings), (case, diagnosis.verdict)


def test_waiting_inside_backward_does_not_hide_who_is_late():
    """All backward wall times are then equal: the buckets' ready times tell."""
    fault = (1, "backward", np.full(60, 0.1))
    case = Case(windows=60, faults=(fault,), wait_inside_backward=True)
    (finding,) = diagnose(fabricated(case)).findings
    assert (finding.ranks, finding.phase, finding.pattern) == ((1,), "backward", "persistent")


@pytest.mark.parametrize(("plane", "seed"), [("server", 8), ("async", 5)])
def test_a_phase_that_alone_proves_it_is_named_through_the_noise_of_another(plane, seed):
    """A busy server answers late at random, which looks like links."""
    draw = np.random.default_rng(seed)
    noise = [(rank, "link", draw.exponential(0.02, 160)) for rank in range(4)]
    slow = (1, "forward", added(draw, "transient", 0.06, 160))
    case = Case(plane=plane, windows=160, faults=(*noise, slow))
    (finding,) = diagnose(fabricated(case)).findings
    assert (finding.ranks, finding.phase) == ((1,), "forward")


def test_two_slow_workers_are_both_named_and_share_the_cost():
    faults = tuple((rank, "forward", np.full(100, 0.1)) for rank in (0, 3))
    diagnosis = diagnose(fabricated(Case(windows=100, faults=faults)))
    assert sorted(one.ranks for one in diagnosis.findings) == [(0,), (3,)]
    assert sum(one.cost for one in diagnosis.findings) == pytest.approx(0.63, abs=0.05)


def test_the_cost_is_what_would_be_saved():
    """50 ms (and what the jitter adds), one worker 100 ms more: a round takes 160 instead of 64 ms."""
    fault = (2, "data", np.full(200, 0.1))
    slow = diagnose(fabricated(Case(windows=200, faults=(fault,))))
    clean_s, slow_s = (_round_s(Case(windows=200, faults=faults)) for faults in ((), (fault,)))
    assert slow.findings[0].cost == pytest.approx(1 - clean_s / slow_s, abs=0.03)
    ahead = next(one for one in slow.what_if if one.change.startswith("rank 2"))
    assert ahead.time == pytest.approx(clean_s / slow_s, abs=0.03)


def _round_s(case):
    times = [step.time_s for step in fabricated(case).ranks[0].steps]
    return (times[-1] - times[0]) / (len(times) - 1)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("phase", ["forward", "link"])
def test_a_worker_delayed_to_a_version_lag_of_20_is_named_with_the_reason(seed, phase):
    """Three others make 20 pushes in the time in which it makes one."""
    delay_s = 0.059 * (20 / 3 - 1)
    fault = (seed % 4, phase, np.full(60, delay_s))
    case = Case(plane="async", windows=60, seed=seed, faults=(fault,))
    (finding,) = diagnose(fabricated(case)).findings
    assert (finding.cause, finding.ranks, finding.phase) == (
        "stale-worker",
        (seed % 4,),
        WORDS[phase],
    )
    assert finding.figures["lag"] == pytest.approx(20, rel=0.15)


def test_hiccups_of_everybody_are_nobodys_fault():
    diagnosis = diagnose(fabricated(Case(windows=400, workers=8, hiccup=0.05)))
    assert [one.cause for one in diagnosis.findings] == ["hiccups"]
    assert "ssp:3" in diagnosis.findings[0].action


def test_thin_evidence_is_undecided():
    fault = (1, "forward", np.full(12, 0.1))
    diagnosis = diagnose(fabricated(Case(windows=12, faults=(fault,))))
    assert diagnosis.status == "undecided"
    assert "20 are needed" in diagnosis.verdict
