"""The coordinator gives the orders of a second implementation that was written to be obvious."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given

from paceline.events import Fact, Order, Pull, Start
from paceline.policy import Coordinator
from paceline.strategies import parse_strategy
from policy.oracle import DumbCoordinator
from policy.scenes import FULL, JOINT, PER_PUSH, QUICK, scenes, speeds, tapes
from policy.world import Scene, World

EVICT_AFTER_S = 40.0


def compare(scene: Scene, tape: Sequence[int], speed: Sequence[int]) -> None:
    strategy = parse_strategy(scene.strategy)
    arguments = {
        "strategy": strategy,
        "world_size": scene.world_size,
        "evict_after_s": EVICT_AFTER_S,
    }
    real, dumb = Coordinator(**arguments), DumbCoordinator(**arguments)
    history: list[Fact] = []

    def feed(fact: Fact) -> list[Order]:
        history.append(fact)
        would_start = isinstance(fact, Pull) and real.would_start(fact.rank)
        orders = real.feed(fact)
        started = any(isinstance(one, Start) and one.rank == fact.rank for one in orders)
        assert would_start == (isinstance(fact, Pull) and started)
        bare = [replace(order, reason="") for order in orders]
        expected = dumb.feed(fact)
        assert bare == expected, "\n".join(map(str, history))
        assert (real.version, real.progress) == (dumb.version, dumb.progress)
        assert real.members == tuple(m.rank for m in dumb.here())
        return orders

    world = World(scene=scene, feed=feed, speeds=speed)
    world.play(tape)
    world.drain()


@QUICK
@given(scene=scenes(*PER_PUSH), tape=tapes, speed=speeds)
def test_orders_of_per_push_strategies_are_the_oracles(scene, tape, speed):
    compare(scene, tape, speed)


@QUICK
@given(scene=scenes(*JOINT), tape=tapes, speed=speeds)
def test_orders_of_joint_strategies_are_the_oracles(scene, tape, speed):
    compare(scene, tape, speed)


@pytest.mark.full
@pytest.mark.timeout(1800)
@FULL
@given(scene=scenes(*PER_PUSH, *JOINT), tape=tapes, speed=speeds)
def test_orders_are_the_oracles_on_ten_thousand_schedules(scene, tape, speed):
    compare(scene, tape, speed)
