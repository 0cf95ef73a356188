"""The parts of the policy, each held against the sentence or the formula that defines it."""

from __future__ import annotations

from math import fsum, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.events import Join, Lease, Pull, Push, Request, Start, Tick, Update, WakeAt
from paceline.policy import Coordinator, divisor, updates_in_pass, window_batches, window_unit
from paceline.policy.liveness import Deadlines
from paceline.policy.weighting import Weights
from paceline.strategies import Async, Sync
from policy.scenes import QUICK

counts = st.integers(1, 4)
weights = st.floats(1e-6, 1e6)


@QUICK
@given(world_size=counts, window=counts, total=st.integers(0, 40))
def test_the_schedule_of_the_collective_plane_is_what_the_coordinator_deals(
    world_size, window, total
):
    coordinator = Coordinator(strategy=Sync(topology="server"), world_size=world_size)
    for rank in range(world_size):
        coordinator.feed(Join(time_s=0, rank=rank))
    orders = []
    for rank in range(world_size):
        request = Request(
            time_s=0, rank=rank, pass_id=0, total=total, window=window, depth=window, weight=1
        )
        orders += coordinator.feed(request)
    for update in range(updates_in_pass(world_size=world_size, window=window, total=total)):
        shares = {order.rank: order.batches for order in orders if isinstance(order, Lease)}
        assert shares == scheduled(world_size, window, total, update)
        orders = play_round(coordinator, list(shares))
    assert coordinator.progress == total


def scheduled(world_size, window, total, update):
    shares = {
        rank: window_batches(
            rank=rank, world_size=world_size, window=window, update=update, total=total
        )
        for rank in range(world_size)
    }
    return {rank: batches for rank, batches in shares.items() if batches}


def play_round(coordinator, ranks):
    for rank in ranks:
        assert isinstance(coordinator.feed(Pull(time_s=0, rank=rank))[0], Start)
    orders = []
    for rank in ranks:
        orders += coordinator.feed(Push(time_s=0, rank=rank, weight=1, unit=1))
    return orders


def test_an_endless_schedule_goes_on():
    batches = window_batches(rank=1, world_size=4, window=2, update=10, total=None)
    assert batches == (81, 85)


@QUICK
@given(events=st.lists(st.tuples(st.integers(0, 5), weights), min_size=1))
def test_the_sum_of_weights_is_exact_whatever_happened_before(events):
    account = Weights()
    latest = {}
    for rank, weight in events:
        if rank not in latest:
            account.join(rank)
        account.push(rank, weight)
        latest[rank] = weight
        assert account.total == fsum(latest.values())
    for rank in sorted(latest)[1:]:
        account.forget(rank)
    alone = latest[min(latest)]
    assert alone / account.total == 1.0


def test_divisor_undoes_the_unit():
    assert divisor([32.0, 32.0, 16.0], 32.0) == 2.5


def test_a_push_that_stands_alone_takes_its_first_weight_as_unit():
    assert window_unit(None, 17.0) == 17.0
    assert window_unit(None, 0.0) == 1.0
    assert window_unit(32.0, 17.0) == 32.0


def test_one_worker_alone_makes_exactly_full_steps():
    coordinator = Coordinator(strategy=Async(), world_size=1)
    coordinator.feed(Join(time_s=0, rank=0))
    coordinator.feed(
        Request(time_s=0, rank=0, pass_id=0, total=None, window=1, depth=1, weight=0.3)
    )
    for weight in (0.1, 0.7, 1e-300, 3.3):
        coordinator.feed(Pull(time_s=0, rank=0))
        update = coordinator.feed(Push(time_s=0, rank=0, weight=weight, unit=weight))[0]
        assert isinstance(update, Update)
        assert (update.lr_scale, update.divisor) == (1.0, 1.0)


@pytest.mark.parametrize("silent", [0, 3, 7])
def test_exactly_the_silent_are_overdue(silent):
    deadlines = Deadlines(10.0)
    for rank in range(8):
        deadlines.watch(rank, 0.0)
    assert deadlines.wake_s() == 10.0
    for beat in range(1, 12):
        for rank in range(8):
            if rank != silent:
                deadlines.heard(rank, float(beat))
    assert deadlines.overdue(9.99) == []
    assert deadlines.overdue(10.0) == [silent]
    assert deadlines.wake_s() == 21.0
    assert deadlines.wake_s() is None, "one alarm at a time"


def test_without_a_limit_nobody_is_ever_overdue():
    deadlines = Deadlines(inf)
    deadlines.watch(0, 0.0)
    assert deadlines.wake_s() is None
    assert deadlines.overdue(1e12) == []


def test_heartbeats_cause_no_orders():
    coordinator = Coordinator(strategy=Async(), world_size=2, evict_after_s=10.0)
    orders = [o for rank in range(2) for o in coordinator.feed(Join(time_s=0, rank=rank))]
    assert orders == [WakeAt(time_s=10.0, reason="a worker may then be overdue")]
    assert not any(coordinator.feed(Tick(time_s=t, rank=t % 2)) for t in range(1, 100))


def test_an_alarm_that_rings_a_rounding_error_too_early_is_set_again():
    deadlines = Deadlines(10.0)
    deadlines.watch(0, 3.123457)
    wake_s = deadlines.wake_s()
    assert deadlines.overdue(wake_s - 1e-9) == []
    assert deadlines.wake_s() == wake_s
    assert deadlines.overdue(wake_s) == [0]


@pytest.mark.parametrize("facts", ["pull", "request push", "request pull pull", "join"])
def test_what_no_driver_may_say_is_our_mistake(facts):
    said = {
        "join": Join(time_s=0, rank=0),
        "request": Request(time_s=0, rank=0, pass_id=0, total=2, window=1, depth=1, weight=1),
        "pull": Pull(time_s=0, rank=0),
        "push": Push(time_s=0, rank=0, weight=1, unit=1),
    }
    *before, last = facts.split()
    coordinator = Coordinator(strategy=Async(), world_size=1)
    for word in ["join", *before]:
        coordinator.feed(said[word])
    with pytest.raises(AssertionError):
        coordinator.feed(said[last])
