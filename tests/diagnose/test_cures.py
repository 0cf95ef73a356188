"""What is advised until a worker is repaired: what the what-ifs say, and no bound against one slow for good."""

from __future__ import annotations

import numpy as np
import pytest

from diagnose.fabricated import Case, fabricated
from paceline.diagnose.cures import NO_BOUND, _of_rounds
from paceline.diagnose.verdict import diagnose


def slowed(plane, *, windows=120, phase="forward", extra_s=0.1, **more):
    faults = ((2, phase, np.full(windows, extra_s)),)
    return fabricated(Case(plane=plane, windows=windows, faults=faults, jitter=0.02, **more))


@pytest.mark.parametrize("plane", ["allreduce", "server", "async", "ssp:3"])
def test_a_bound_is_never_advised_against_one_that_is_slow_for_good(plane):
    first = diagnose(slowed(plane)).findings[0]
    assert (first.ranks, first.pattern) == ((2,), "persistent")
    assert "a bound limits" not in first.action
    assert "Until then ssp" not in first.action
    if plane != "async" or first.cause == "stale-worker":
        assert "No bound of SSP helps" in first.action


def test_who_is_stale_for_good_is_not_sent_back_to_a_bound():
    first = diagnose(slowed("async", extra_s=0.3, windows=40)).findings[0]
    assert first.cause == "stale-worker"
    assert "--recipe stable" in first.action
    assert "ssp:8" not in first.action
    assert "because it is slow in forward (persistent). Being slow costs " in first.sentence


def test_the_sentence_follows_the_what_ifs():
    """What a bound saves there is said, and of what; never 'no bound helps' above '0.88x ssp:3'."""
    found = diagnose(slowed("server", phase="link", hiccup=0.1, extra_s=0.06))
    times = {one.change: one.time for one in found.what_if}
    action = found.findings[0].action
    assert ("No bound of SSP helps" in action) == (times["strategy ssp:3"] > 0.98), times
    assert ("async (" in action) == (times["strategy async"] <= 0.95), times
    assert "strategy backup:1 (at equal samples)" in times


@pytest.mark.parametrize(
    ("pattern", "times", "said"),
    [
        ("persistent", {"ssp:3": 0.88, "async": 0.7}, "only the hiccups beside it (0.88x of the time)"),
        ("persistent", {"ssp:3": 0.955}, "only the hiccups beside it (0.95x of the time)"),
        ("persistent", {"ssp:3": 0.99, "async": 0.98}, f"{NO_BOUND} No other strategy makes up for it."),
        ("persistent", {"ssp:3": 1.0, "backup:1": 0.8}, "Until it is repaired: backup:1 (0.80x of"),
        ("transient", {"ssp:3": 0.8}, "Until then ssp:3 (0.80x of the time) hides hiccups"),
        ("transient", {"ssp:3": 1.0}, "No other strategy makes up for it."),
        ("bursty", {"ssp:3": 0.9}, "hides bursts up to its length"),
    ],
)  # fmt: skip
def test_words_by_figures(pattern, times, said):
    assert said in _of_rounds(pattern, times)


def test_the_late_one_does_not_wait_for_itself():
    extra = np.where(np.arange(120) % 3, 0.1, -0.01)
    run = fabricated(Case(plane="allreduce", faults=((2, "forward", extra),), jitter=0.6))
    (remark,) = [one for one in diagnose(run).remarks if "Waiting inside a collective" in one]
    assert "mostly for rank 2: rank 0 (" in remark
    assert "rank 2 (" not in remark


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"emulate": "c.toml", "script": "train.py", "args": ["--epochs", "2"]},
         "paceline advise --for c.toml -n 4 train.py --epochs 2"),
        ({"script": "train.py"}, "paceline advise -n 4 train.py (--for the cluster.toml that"),
        ({}, "paceline advise -n 4 SCRIPT"),
    ],
)  # fmt: skip
def test_next_names_the_commands_that_look_on(request_, said):
    action = diagnose(slowed("server", summary={"request": request_})).findings[0].action
    assert "Run 'paceline doctor' on rank 2's machine" in action
    assert f"Which strategy then trains soonest: {said}" in action


def test_of_a_slow_link_measure_is_named():
    found = diagnose(slowed("server", phase="link")).findings[0]
    assert found.cause == "slow-link"
    assert "'paceline measure'" in found.action
