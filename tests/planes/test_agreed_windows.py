"""The pure parts of a collective window: votes that lose nothing, and schedules equal on all ranks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.worker.plane import PassPlan
from paceline.worker.progress import ScheduledPass
from paceline.worker.vote import Vote, ballot, tally

WORLD = 3


def vote_of(**changes: object) -> Vote:
    basic: dict[str, object] = {
        "weight": 4.0,
        "batches": 2,
        "bad": None,
        "stop": False,
        "used": b"\1\0",
    }
    return Vote(**{**basic, **changes})  # type: ignore[arg-type]


def joined(votes: list[Vote]) -> list[float]:
    ballots = [ballot(vote, rank=rank, world_size=WORLD) for rank, vote in enumerate(votes)]
    return [sum(column) for column in zip(*ballots, strict=True)]


def test_each_ranks_bad_parameter_is_named() -> None:
    votes = [vote_of(), vote_of(bad=0), vote_of(bad=1)]
    assert tally(joined(votes), world_size=WORLD).bad == ((1, 0), (2, 1))


def test_weights_and_batches_add_up_and_one_stop_is_enough() -> None:
    votes = [vote_of(weight=0.0, batches=0), vote_of(stop=True), vote_of(used=b"\0\0")]
    result = tally(joined(votes), world_size=WORLD)
    assert (result.weight, result.batches, result.stop) == (8.0, 4, True)
    assert result.used == (True, False)
    assert result.bad == ()


def test_who_broke_off_is_named_and_is_not_bad() -> None:
    result = tally(joined([vote_of(), vote_of(weight=0.0, broken=True)]), world_size=WORLD)
    assert result.broken == (1,)
    assert result.bad == ()


@given(st.lists(st.floats(0, 1e30, allow_subnormal=False), min_size=WORLD, max_size=WORLD))
def test_float32_carries_weights_to_fourteen_digits(weights: list[float]) -> None:
    ballots = [
        ballot(vote_of(weight=weight), rank=rank, world_size=WORLD)
        for rank, weight in enumerate(weights)
    ]
    sums = torch.tensor(ballots, dtype=torch.float32).sum(0).tolist()
    assert tally(sums, world_size=WORLD).weight == pytest.approx(sum(weights), rel=1e-14, abs=1e-30)


@given(
    total=st.integers(0, 60),
    window=st.integers(1, 4),
    world=st.integers(1, 5),
    depth=st.integers(1, 12),
)
def test_ranks_end_together_and_every_batch_is_leased_once_before_its_window(
    total: int, window: int, world: int, depth: int
) -> None:
    plan = PassPlan(
        pass_id=0, total=total, window=window, depth=max(depth, window), weight=1.0, unit=1.0
    )
    ranks = [ScheduledPass(plan, rank=rank, world_size=world) for rank in range(world)]
    computed: list[int] = []
    leased: dict[int, list[int]] = {rank: [] for rank in range(world)}
    while not ranks[0].exhausted():
        assert not any(one.exhausted() for one in ranks)
        for rank, one in enumerate(ranks):
            leased[rank] += one.leases()
            assert set(one.window()) <= set(leased[rank])
            computed += one.window()
            one.advance()
    assert all(one.exhausted() for one in ranks)
    assert sorted(computed) == list(range(total))
    assert sorted(batch for own in leased.values() for batch in own) == list(range(total))
