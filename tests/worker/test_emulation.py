"""Emulated time: where a worker sleeps, for how long, and what throws it off and what does not."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from paceline.simulate.cluster import ClusterModel
from paceline.simulate.network import over_network
from paceline.strategies import parse_strategy
from paceline.worker.emulation import Emulation
from paceline.worker.phases import Phases
from paceline.worker.plane import Outcome, Window
from paceline.worker.ways import Ways, ways_of


@dataclass
class World:
    """A clock that moves when somebody sleeps, or :meth:`spend`\\ s time; who oversleeps, by how much."""

    now_s: float = 100.0
    oversleep_s: float = 0.0
    slept_s: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(pytest.approx(seconds))
        self.now_s += seconds + self.oversleep_s

    def spend(self, seconds: float) -> None:
        self.now_s += seconds


class Tens:
    """Micro-batch number 0, 1, 2, ... takes 10, 11, 12, ... seconds."""

    def step_time_s(self, *, rank: int, step: int) -> float:
        return 10.0 + step


def emulation(world: World, ways: Ways | None = None, *, collective: bool = False) -> Emulation:
    return Emulation(
        Tens(), rank=1, ways=ways or Ways(), collective=collective,
        clock_s=lambda: world.now_s, sleep_s=world.sleep,
    )  # fmt: skip


def window(*, gate_s: float = 0.0, pull_s: float = 0.0) -> Window:
    return Window(clock=0, version=0, batches=(0,), unit=None, gate_s=gate_s, pull_s=pull_s)


def decided(*, wait_s: float = 0.0, exchange_s: float = 0.0) -> Outcome:
    return Outcome(
        applied=True, reason="", version=1, clock=1, norm=1.0, wait_s=wait_s, exchange_s=exchange_s
    )


def test_real_work_counts_towards_the_step() -> None:
    world = World()
    held = emulation(world)
    held.started(window())
    world.spend(4.0)
    held.hold()
    held.hold()
    assert world.slept_s == [6.0, 11.0]
    assert world.now_s == 121.0


def test_a_pull_a_step_and_a_push_each_take_what_the_model_says() -> None:
    world = World()
    held = emulation(world, Ways(pull_s=lambda n: 1.0 + n, push_s=lambda n: 5.0 + n))
    began = held.started(window(pull_s=0.25))
    assert began.pull_s == 1.0, "0.25 s of it went by in reality"
    held.hold()
    held.push()
    held.decided(decided())
    held.started(window())
    held.hold()
    held.push()
    assert world.slept_s == [0.75, 10.0, 5.0, 2.0, 11.0, 6.0]


def test_what_this_machine_takes_between_windows_is_caught_up() -> None:
    world = World(oversleep_s=0.5)
    held = emulation(world)
    held.started(window())
    held.hold()
    world.spend(0.3)  # until the answer has come
    held.decided(decided(exchange_s=0.3))
    world.spend(0.2)  # until the next window may start
    held.started(window(pull_s=0.1))
    held.hold()
    assert world.slept_s == [10.0, 11.0 - 0.5 - 0.3 - 0.2]
    assert world.now_s == 100.0 + 10.0 + 11.0 + 0.5


def test_the_trace_has_the_clusters_times() -> None:
    world = World(oversleep_s=0.5)
    held = emulation(world, Ways(pull_s=lambda _: 2.0, push_s=lambda _: 3.0))
    phases = Phases(held.now_s)
    held.begin()
    for _ in range(4):
        world.spend(0.3)
        held.started(window(pull_s=0.3))
        phases.take()
        phases.enter("forward")
        world.spend(0.4)
        held.hold()
        phases.enter("exchange")
        held.push()
        world.spend(0.7)
        held.decided(decided(wait_s=0.1, exchange_s=0.6))
        spent = phases.take()
        phases.enter("user")
        held.leave()
        world.spend(0.2)
        held.enter()
        assert spent["exchange"] == pytest.approx(3.0 + 0.1, abs=0.101)
    assert spent["forward"] == pytest.approx(13.0)


def test_a_worker_that_was_held_goes_on_from_where_it_was_let_through() -> None:
    world = World(oversleep_s=0.5)
    held = emulation(world)
    held.started(window())
    held.hold()  # at 110.5, half a second late
    world.spend(7.0 + 0.25)
    held.decided(decided(wait_s=7.0, exchange_s=0.25))  # the others' last push came at 117.5
    world.spend(3.0 + 0.125)
    held.started(window(gate_s=3.0, pull_s=0.125))  # let through at 120.75
    held.hold()
    assert world.now_s == 120.75 + 11.0 + 0.5


def test_a_wait_shorter_than_the_worker_was_late_makes_up_for_a_part() -> None:
    world = World(oversleep_s=2.0)
    held = emulation(world)
    held.started(window())
    held.hold()  # at 112 instead of 110
    world.spend(0.5)
    held.decided(decided(wait_s=0.5))
    held.started(window())
    held.hold()
    assert world.slept_s[-1] == 11.0 - 1.5


def test_being_served_is_no_waiting_in_which_lateness_would_not_matter() -> None:
    world = World(oversleep_s=0.5)
    held = emulation(world, Ways(serving_s=5.0))
    held.started(window())
    held.hold()
    world.spend(5.25)
    held.decided(decided(wait_s=5.25))  # a quarter of a second behind somebody else
    held.started(window())
    held.hold()
    assert world.slept_s[-1] == 11.0 - 0.25


def test_a_collective_does_not_tell_how_long_others_were_waited_for() -> None:
    world = World(oversleep_s=0.5)
    held = emulation(world, collective=True)
    held.started(window())
    held.hold()
    world.spend(20.0)
    held.decided(decided(exchange_s=20.0))
    held.started(window())
    held.hold()
    assert world.slept_s[-1] == 11.0


def test_the_users_own_code_is_not_in_the_file_and_takes_its_time() -> None:
    world = World()
    held = emulation(world)
    held.started(window())
    held.hold()
    held.leave()
    world.spend(40.0)
    held.enter()
    held.hold()
    held.decided(decided())
    held.leave()
    world.spend(60.0)
    held.started(window())
    held.hold()
    assert world.slept_s == [10.0, 11.0, 12.0]
    held.begin()
    world.spend(1000.0)
    held.started(window())
    held.hold()
    assert world.slept_s[-1] == 13.0


NETWORK = """
[workers]
count = 4
step_s = 1.0
[network]
size_bytes = 1e6
bytes_per_s = 1e7
server_bytes_per_s = 1e8
[[links]]
rank = 2
delay_s = 0.5
"""


def ways(word: str, rank: int, *, workers: int = 4) -> Ways:
    network = ClusterModel.parse(NETWORK).network
    return ways_of(network, over_network(parse_strategy(word)), rank=rank, workers=workers)


def test_ways_to_a_server_are_each_workers_own() -> None:
    for word in ("sync:server", "backup:1", "ssp:3", "async"):
        assert ways(word, 0).push_s(7) == ways(word, 0).pull_s(7) == pytest.approx(0.1)
        assert ways(word, 2).push_s(7) == ways(word, 2).pull_s(7) == pytest.approx(0.6)
        assert ways(word, 0).serving_s == pytest.approx(0.02)


def test_a_collective_takes_everyone_what_the_slowest_link_makes_of_it() -> None:
    for word in ("sync", "sync:allreduce"):
        for rank in (0, 2):
            assert ways(word, rank).push_s(7) == pytest.approx(6 * 0.5 + 6 / 4 * 0.1)
            assert ways(word, rank).pull_s(7) == ways(word, rank).serving_s == 0.0


def test_a_worker_alone_crosses_nothing() -> None:
    assert ways("sync", 0, workers=1) == ways_of(None, parse_strategy("async"), rank=0, workers=4)
