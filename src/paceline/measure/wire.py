"""What measuring and our own all-reduces need of a group: to send to a rank and to receive from one."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Wire(Protocol):
    """One rank's end of the group. Messages between two ranks arrive in the order of their sending."""

    rank: int
    world_size: int

    def send(self, array: Array, to: int) -> None:
        """Blocks until ``array`` (contiguous) may be written to again; the other may not have it yet."""

    def recv(self, array: Array, source: int) -> None:
        """Fill ``array`` with what ``source`` sent; blocks."""

    def both(self, out: Array, to: int, into: Array, source: int) -> None:
        """Send and receive at the same time, so that ranks that all send do not wait for each other."""


def barrier(wire: Wire) -> None:
    """Nobody goes on before everybody is here: each tells the one 1, 2, 4, ... further on.

    Hensgen, Finkel, Manber, Int. J. of Parallel Programming 1988.
    """
    token, other = np.zeros(1), np.zeros(1)
    distance = 1
    while distance < wire.world_size:
        to, source = wire.rank + distance, wire.rank - distance
        wire.both(token, to % wire.world_size, other, source % wire.world_size)
        distance *= 2


def gather(wire: Wire, own: Array) -> Array:
    """Everybody's ``own`` (equal shapes), stacked in rank order, on rank 0; elsewhere an empty array."""
    if wire.rank != 0:
        wire.send(own, 0)
        return np.empty(0)
    rows = [own, *(np.empty_like(own) for _ in range(1, wire.world_size))]
    for source in range(1, wire.world_size):
        wire.recv(rows[source], source)
    return np.stack(rows)


def spread(wire: Wire, array: Array) -> Array:
    """Rank 0's ``array``, everywhere (written into it)."""
    if wire.rank != 0:
        wire.recv(array, 0)
        return array
    for to in range(1, wire.world_size):
        wire.send(array, to)
    return array
