"""Timing a group: between threads, and by a clock that only transfers move."""

import numpy as np
import pytest

from paceline.doctor.speed import speeds
from paceline.measure.all_reduce import ALGORITHMS
from paceline.measure.links import Effort, time_links
from paceline.measure.result import links_of
from paceline.measure.sweep import sweep

from .threads import on_all

EFFORT = Effort(passes=1, round_trips=5, repeats=2, transfer_s=0.01)


class Clocked:
    """A wire on which a message takes ``alpha_s + bytes / rate`` by the receiver's clock.

    The sender's clock runs on with the answer, which carries the time, as a real one would.
    """

    def __init__(self, wire, alpha_s, rates):
        self.rank, self.world_size = wire.rank, wire.world_size
        self._wire, self._alpha_s, self._rates = wire, alpha_s, rates
        self.now_s = 0.0

    def send(self, array, to):
        self._wire.send(np.array([self.now_s]), to)
        self._wire.send(array, to)

    def recv(self, array, source):
        sent_s = np.zeros(1)
        self._wire.recv(sent_s, source)
        self._wire.recv(array, source)
        way_s = self._alpha_s + array.nbytes / self._rates[source][self.rank]
        self.now_s = max(self.now_s, float(sent_s[0])) + way_s

    def both(self, out, to, into, source):
        self.send(out, to)
        self.recv(into, source)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_links_that_there_are_come_back_exactly(ranks):
    rates = 1e8 * (1 + np.arange(ranks * ranks).reshape(ranks, ranks))

    def act(wire):
        clocked = Clocked(wire, 1e-3, rates)
        return time_links(clocked, EFFORT, lambda: clocked.now_s)

    timed, *others = on_all(ranks, act)
    assert others == [None] * (ranks - 1)
    links = links_of([timed])
    assert [(one.rank, one.to) for one in links] == [
        (a, b) for a in range(ranks) for b in range(ranks) if a != b
    ]
    for one in links:
        assert one.bytes_per_s == pytest.approx(rates[one.rank][one.to], rel=1e-6)
        assert one.alpha_s == pytest.approx(1e-3, rel=1e-3)


def test_a_sweep_of_all_algorithms():
    def checked(array, ranks):
        assert np.all(array == ranks)

    def act(wire):
        return list(sweep(wire, ALGORITHMS, fast_clock(), checked))

    timings, *others = on_all(4, act)
    assert others == [[], [], []]
    assert {one.algorithm for one in timings} == set(ALGORITHMS)
    assert len(timings) == 4 * len(ALGORITHMS)


def fast_clock():
    """Each look is a second later: few repeats."""
    seen = iter(range(10**9))
    return lambda: float(next(seen))


def test_speeds_of_a_group():
    found, other = on_all(2, lambda wire: speeds(wire, ALGORITHMS["ring"], fast_clock()))
    assert other is None
    assert found.processes == 2
    assert found.copy_together == 2 * found.copy_alone
