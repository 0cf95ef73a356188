"""Every all-reduce gives what a naive sum gives, on any number of ranks and any length."""

import numpy as np
import pytest

from paceline.errors import UsageError
from paceline.measure.all_reduce import ALGORITHMS, hierarchical
from paceline.measure.wire import barrier, gather, spread

from .threads import on_all

LENGTHS = (0, 1, 3, 7, 64, 1000)


def summed(world_size, length, algorithm):
    """What each rank has afterwards, and what is right (whole numbers: any order of adding is)."""
    parts = np.random.default_rng(length).integers(-99, 99, (world_size, length)).astype(np.float32)

    def act(wire):
        array = parts[wire.rank].copy()
        algorithm(wire, array)
        return array

    return on_all(world_size, act), parts.sum(axis=0)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 6, 7, 8, 13])
def test_all_ranks_have_the_sum(name, world_size):
    for length in LENGTHS:
        seen, right = summed(world_size, length, ALGORITHMS[name])
        assert all(np.array_equal(one, right) for one in seen), length


@pytest.mark.parametrize(("nodes", "per_node"), [(1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (2, 3)])
def test_hierarchical_too(nodes, per_node):
    for length in LENGTHS:
        seen, right = summed(nodes * per_node, length, hierarchical(per_node))
        assert all(np.array_equal(one, right) for one in seen), length


def test_hierarchical_refuses_nodes_that_are_not_full():
    with pytest.raises(UsageError, match="5 ranks do not fill nodes of 2"):
        on_all(5, lambda wire: hierarchical(2)(wire, np.zeros(4)))


def test_gather_spread_and_barrier():
    def act(wire):
        barrier(wire)
        rows = gather(wire, np.full(2, wire.rank))
        return rows, spread(wire, np.array([wire.rank + 7]))

    done = on_all(5, act)
    assert np.array_equal(done[0][0], [[rank, rank] for rank in range(5)])
    assert [int(told[0]) for _, told in done] == [7] * 5
