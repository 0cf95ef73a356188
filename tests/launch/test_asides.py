"""What the launcher says while a run goes on: one verdict, once it is certain; that starting takes long."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from diagnose.fabricated import Case, fabricated, recorded
from paceline.diagnose.verdict import diagnose
from paceline.launch.asides import (
    FIRST_MINUTES_S,
    LOOK_EVERY_S,
    MAX_SHARE,
    Certainty,
    LiveVerdict,
    next_pause_s,
    slow_start,
    stopped_server,
)


def judged(rank=2, extra_s=0.05, windows=60):
    return diagnose(
        fabricated(
            Case(
                windows=windows, faults=((rank, "forward", np.full(windows, extra_s)),), jitter=0.02
            )
        )
    )


def test_what_two_looks_in_a_row_find_is_said():
    certainty = Certainty()
    assert [certainty.feed(judged()) for _ in range(2)] == ["", judged().verdict]


@pytest.mark.parametrize(
    "other", [judged(rank=1), diagnose(fabricated(Case())), judged(windows=8)],
    ids=["another rank", "well", "undecided"],
)  # fmt: skip
def test_a_verdict_that_does_not_hold_is_not_said(other):
    certainty = Certainty()
    assert [certainty.feed(one) for one in (judged(), other, judged())] == ["", "", ""]


def test_what_costs_little_is_not_worth_interrupting():
    """A quarter slower among eight under async: notable, yet next to free."""
    case = Case(plane="async", workers=8, windows=60, faults=((1, "forward", np.full(60, 0.016)),))
    found = diagnose(fabricated(case))
    assert [one.severity for one in found.findings] == ["info"]
    certainty = Certainty()
    assert [certainty.feed(found) for _ in range(3)] == ["", "", ""]


def looks(cost_s, count=40):
    """When looks that cost so much of a processor are made, in seconds since the first windows."""
    pause_s, at_s = LOOK_EVERY_S, [LOOK_EVERY_S]
    for _ in range(count):
        pause_s = next_pause_s(pause_s, spent_s=cost_s, since_s=at_s[-1])
        at_s.append(at_s[-1] + pause_s)
    return at_s


def test_looks_never_cost_a_hundredth_of_a_core():
    assert MAX_SHARE < 0.01
    for cost_s in (0.01, 0.5, 6.0):
        for number, at_s in enumerate(looks(cost_s)[1:], start=1):
            assert number * cost_s <= MAX_SHARE * (at_s - LOOK_EVERY_S) + 1e-9


def test_a_run_of_a_minute_is_looked_at_several_times_and_one_of_an_hour_ever_more_rarely():
    at_s = looks(0.03)
    assert at_s[:5] == [10.0, 20.0, 30.0, 40.0, 50.0]
    late = [b - a for a, b in pairwise(at_s) if a > FIRST_MINUTES_S]
    assert late[0] > LOOK_EVERY_S
    assert late == sorted(late)


def test_it_is_counted_from_the_first_windows_however_slowly_workers_start(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.launch.asides.BEGUN_POLL_S", 0.01)
    verdict = LiveVerdict(tmp_path / "run", shown="runs/x", every_s=0.3)
    try:
        time.sleep(0.4)  # longer than the pause: a look now would have been for nothing
        slowed(tmp_path)
        begun_s = time.monotonic()
        while not (said := verdict()) and time.monotonic() < begun_s + 60:
            time.sleep(0.02)
        assert said.startswith("Rank 2 is slow")
        assert time.monotonic() - begun_s >= 0.55
    finally:
        verdict.close()


def test_the_thread_reads_the_run_and_speaks_once(tmp_path):
    run = recorded(tmp_path, Case(faults=((2, "forward", np.full(120, 0.05)),), jitter=0.02))
    verdict = LiveVerdict(run, shown="runs/x", every_s=0.01)
    try:
        by_s = time.monotonic() + 60
        while not (said := verdict()) and time.monotonic() < by_s:
            time.sleep(0.05)
        assert said.startswith("Rank 2 is slow in forward (persistent). It costs ")
        assert said.endswith("('paceline diagnose runs/x' says more)")
        assert verdict() == ""
    finally:
        verdict.close()


def test_a_long_start_is_said_once_and_only_if_nothing_is_recorded(tmp_path):
    now_s = [0.0]
    aside = slow_start(tmp_path, lambda: now_s[0])
    assert aside() == ""
    now_s[0] = 3.1
    assert "still starting" in aside()
    assert aside() == ""
    late = slow_start(tmp_path, lambda: now_s[0])
    (tmp_path / "rank-0.jsonl").touch()
    now_s[0] = 9.0
    assert late() == ""


def slowed(tmp_path, windows=120):
    case = Case(windows=windows, faults=((2, "forward", np.full(windows, 0.05)),), jitter=0.02)
    return recorded(tmp_path, case)


def test_a_run_that_ends_before_the_first_look_has_its_verdict_all_the_same(tmp_path):
    verdict = LiveVerdict(slowed(tmp_path, 40), shown="runs/x")
    verdict.close()
    assert verdict.last().startswith("Rank 2 is slow in forward (persistent). It costs ")
    assert verdict.last() == "", "once"


def test_what_was_said_while_it_ran_is_not_said_again(tmp_path):
    verdict = LiveVerdict(slowed(tmp_path), shown="runs/x", every_s=0.01)
    by_s = time.monotonic() + 60
    while not verdict() and time.monotonic() < by_s:
        time.sleep(0.05)
    verdict.close()
    assert verdict.last() == ""


@pytest.mark.parametrize("windows", [15, 40])
def test_at_the_end_of_a_run_that_is_well_or_too_short_nothing_is_said(tmp_path, windows):
    verdict = LiveVerdict(recorded(tmp_path, Case(windows=windows)), shown="runs/x")
    verdict.close()
    assert verdict.last() == ""


def test_the_end_of_a_run_does_not_wait_for_a_verdict_on_a_huge_trace(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.launch.asides.MOST_AT_END_BYTES", 1000)
    verdict = LiveVerdict(slowed(tmp_path), shown="runs/x")
    verdict.close()
    assert verdict.last() == ""


def test_a_server_that_is_stopped_is_said_once_each_time():
    now_s, stopped = 0.0, True
    aside = stopped_server(lambda: stopped, lambda: now_s)
    said = []
    for now_s in range(20):
        stopped = not 8 <= now_s < 10
        if aside():
            said.append(now_s)
    assert said == [3, 13]
