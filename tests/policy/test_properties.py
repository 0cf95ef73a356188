"""What must hold on every schedule: the SSP conditions, the lag bound, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given

from paceline.policy import Coordinator
from paceline.strategies import SSP, Async, Strategy, Sync, parse_strategy
from policy import claims
from policy.scenes import FULL, JOINT, PER_PUSH, QUICK, scenes, speeds, tapes
from policy.world import Scene, World


def played(scene: Scene, tape: Sequence[int], speed: Sequence[int], strategy: Strategy) -> World:
    """The world after the tape has run and everybody who was left has finished."""
    coordinator = Coordinator(strategy=strategy, world_size=scene.world_size, evict_after_s=40.0)
    world = World(scene=scene, feed=coordinator.feed, speeds=speed)
    if isinstance(strategy, SSP) and strategy.staleness > 0:
        world.observers.append(
            lambda: claims.slowest_is_never_held(world, coordinator.clock, strategy.staleness)
        )
    world.play(tape)
    world.drain()
    return world


def check(scene: Scene, tape: Sequence[int], speed: Sequence[int]) -> None:
    strategy = parse_strategy(scene.strategy)
    world = played(scene, tape, speed, strategy)
    claims.pushes_are_decided_once(world)
    claims.nobody_waits_for_ever(world)
    if scene.split:
        claims.batches_are_computed_once(world)
    staleness = strategy.staleness if isinstance(strategy, SSP) else 0
    if not scene.strategy.startswith("backup"):
        claims.sees_all_updates_below(world, staleness)
    claims.lags_are_true_and_bounded(world, staleness)


@QUICK
@given(scene=scenes(*PER_PUSH), tape=tapes, speed=speeds)
def test_every_claim_holds_under_per_push_strategies(scene, tape, speed):
    check(scene, tape, speed)


@QUICK
@given(scene=scenes(*JOINT), tape=tapes, speed=speeds)
def test_every_claim_holds_under_joint_strategies(scene, tape, speed):
    check(scene, tape, speed)


@pytest.mark.full
@pytest.mark.timeout(1800)
@FULL
@given(scene=scenes(*PER_PUSH, *JOINT), tape=tapes, speed=speeds)
def test_every_claim_holds_on_ten_thousand_schedules(scene, tape, speed):
    check(scene, tape, speed)


@QUICK
@given(scene=scenes("async"), tape=tapes, speed=speeds)
def test_a_bound_nobody_reaches_gives_the_orders_of_async(scene, tape, speed):
    assert parse_strategy("ssp:inf") == Async()
    wide = played(scene, tape, speed, SSP(staleness=10_000))
    free = played(scene, tape, speed, parse_strategy("ssp:inf"))
    assert without_reasons(wide) == without_reasons(free)


@QUICK
@given(scene=scenes("ssp:0"), tape=tapes, speed=speeds)
def test_ssp_0_gives_the_orders_of_sync(scene, tape, speed):
    by_ssp = played(scene, tape, speed, SSP(staleness=0))
    by_sync = played(scene, tape, speed, Sync(topology="server"))
    assert by_ssp.log == by_sync.log


def without_reasons(world: World) -> list[object]:
    return [
        replace(event, reason="") if hasattr(event, "version") or hasattr(event, "last") else event
        for event in claims.events(world)
    ]
