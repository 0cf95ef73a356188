"""The largest clock lead at a start is read from the decisions, whatever the workers' states."""

import pytest

from paceline.compare.lead import largest_lead
from paceline.events import Drop, Lease, Release, Start, Update
from paceline.runs import read_run
from synthetic_runs import Ring, simulated_run


def start(rank, clock):
    return Start(rank=rank, clock=clock, version=0, batches=(0,), reason="")


def update(rank, clock):
    return Update(
        ranks=(rank,), clocks=(clock,), lags=(0,), version=1, divisor=1.0, lr_scale=1.0, weight=1.0,
        progress=1, reason="",
    )  # fmt: skip


def last(rank):
    return Lease(rank=rank, batches=(), last=True, reason="")


def test_a_worker_in_its_window_stands_at_that_windows_clock():
    run = [start(0, 0), start(1, 0), update(0, 0), start(0, 1), update(0, 1), start(0, 2)]
    assert largest_lead(run) == 2


def test_a_worker_between_windows_stands_at_its_next_ones_clock():
    run = [start(0, 0), update(0, 0), start(0, 1), start(1, 0), update(1, 0), start(1, 1)]
    assert largest_lead(run) == 1


def test_a_worker_that_is_done_with_the_pass_holds_nobody():
    run = [start(0, 0), start(1, 0), update(1, 0), update(0, 0), start(0, 1), update(0, 1),
           start(0, 2), update(0, 2), last(0), last(1)]  # fmt: skip
    assert largest_lead(run) == 0


def test_the_dead_hold_nobody():
    gone = Release(rank=1, clock=0, returned=(0,), reason="")
    assert largest_lead([start(0, 0), start(1, 0), gone, update(0, 0), start(0, 1)]) == 0


def test_a_dropped_push_ends_its_window():
    late = Drop(rank=1, clock=0, batches=(0,), kind="late", reason="")
    run = [start(0, 0), start(1, 0), update(0, 0), late, start(1, 2), start(0, 2)]
    assert largest_lead(run) == 0


def test_nothing_started_nothing_said():
    assert largest_lead([]) is None


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_run_under_ssp_leads_by_its_bound_at_most(tmp_path, staleness):
    ring = Ring(staleness=staleness, windows=200, hiccup=0.2)
    assert largest_lead(read_run(simulated_run(tmp_path, ring)).decisions) == staleness
