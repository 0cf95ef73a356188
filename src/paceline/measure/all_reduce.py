"""All-reduces over nothing but send and receive, short enough to read: which one wins on these links?

Each replaces ``array`` (flat) by its sum over all ranks. Costs with N ranks, M bytes, a link's latency
alpha and bandwidth B, as in :mod:`paceline.cost`; only the tree differs: it is a plain one, not pipelined,
so that every level pays for all M bytes.

ring              2 (N-1) alpha + 2 (N-1)/N M/B
tree              2 ceil(log2 N) (alpha + M/B)
halving-doubling  2 log2 N alpha + 2 (N-1)/N M/B; where N is no power of two, 2 (alpha + M/B) more
hierarchical      a ring's halves inside each node, between them a ring of M/g across the nodes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from paceline.errors import UsageError
from paceline.measure.wire import Array, Wire

AllReduce = Callable[[Wire, Array], None]


def ring(wire: Wire, array: Array) -> None:
    """Everyone passes a share on to the next, N - 1 times adding up and N - 1 times copying."""
    members = range(wire.world_size)
    shares = np.array_split(array, wire.world_size)
    _scatter_sums(wire, members, shares)
    _pass_round(wire, members, shares)


def tree(wire: Wire, array: Array) -> None:
    """Up a binary tree adding, down it copying. The parent of 6 (110) is 4 (100), whose is 0."""
    incoming = np.empty_like(array)
    own_bit = wire.rank & -wire.rank or _power_above(wire.world_size)
    children = [
        wire.rank + bit for bit in _bits_below(own_bit) if wire.rank + bit < wire.world_size
    ]
    for child in children:
        wire.recv(incoming, child)
        array += incoming
    if wire.rank:
        wire.send(array, wire.rank - own_bit)
        wire.recv(array, wire.rank - own_bit)
    for child in reversed(children):
        wire.send(array, child)


def halving_doubling(wire: Wire, array: Array) -> None:
    """Exchange half of it with one at distance 1, a quarter at 2, ... and all of it back again.

    Ranks beyond the last power of two give theirs to another one first, and get the sum at the end.
    """
    core = _power_above(wire.world_size + 1) // 2
    if wire.rank >= core:
        wire.send(array, wire.rank - core)
        wire.recv(array, wire.rank - core)
        return
    extra = wire.rank + core if wire.rank + core < wire.world_size else None
    if extra is not None:
        incoming = np.empty_like(array)
        wire.recv(incoming, extra)
        array += incoming
    _halve_and_double(wire, array, core)
    if extra is not None:
        wire.send(array, extra)


def hierarchical(per_node: int) -> AllReduce:
    """One that adds up inside nodes of ``per_node`` ranks first; rank r is on node r // per_node."""

    def all_reduce(wire: Wire, array: Array) -> None:
        check_nodes(wire.world_size, per_node)
        place, first = wire.rank % per_node, wire.rank - wire.rank % per_node
        inside = range(first, first + per_node)
        across = range(place, wire.world_size, per_node)
        shares = np.array_split(array, per_node)
        _scatter_sums(wire, inside, shares)
        mine = shares[(place + 1) % per_node]
        parts = np.array_split(mine, len(across))
        _scatter_sums(wire, across, parts)
        _pass_round(wire, across, parts)
        _pass_round(wire, inside, shares)

    return all_reduce


ALGORITHMS: dict[str, AllReduce] = {
    "ring": ring,
    "tree": tree,
    "halving-doubling": halving_doubling,
}


def check_nodes(workers: int, per_node: int) -> None:
    """Raises UsageError unless ``workers`` fill nodes of ``per_node``."""
    if workers % per_node:
        raise UsageError(
            f"hierarchical all-reduce: {workers} ranks do not fill nodes of {per_node}. "
            "Give a --per-node that divides them, or leave hierarchical out."
        )


def _scatter_sums(wire: Wire, members: Sequence[int], shares: list[Array]) -> None:
    """Afterwards member i has the sum of share i + 1."""
    to, source, place = _neighbours(wire.rank, members)
    for step in range(len(members) - 1):
        out, into = shares[place - step], shares[place - step - 1]
        incoming = np.empty_like(into)
        wire.both(out, to, incoming, source)
        into += incoming


def _pass_round(wire: Wire, members: Sequence[int], shares: list[Array]) -> None:
    """Member i has share i + 1; afterwards everyone has all."""
    to, source, place = _neighbours(wire.rank, members)
    for step in range(len(members) - 1):
        here = (place + 1 - step) % len(members)
        wire.both(shares[here], to, shares[here - 1], source)


def _neighbours(rank: int, members: Sequence[int]) -> tuple[int, int, int]:
    """(the next one's rank, the one before's, own place)."""
    place = members.index(rank)
    return members[(place + 1) % len(members)], members[place - 1], place


def _halve_and_double(wire: Wire, array: Array, core: int) -> None:
    spans: list[tuple[Array, Array]] = []
    mine = array
    for bit in _bits_below(core):
        low, high = np.array_split(mine, 2)
        mine, other = (high, low) if wire.rank & bit else (low, high)
        incoming = np.empty_like(mine)
        wire.both(other, wire.rank ^ bit, incoming, wire.rank ^ bit)
        mine += incoming
        spans.append((mine, other))
    for bit, (mine, other) in zip(reversed(_bits_below(core)), reversed(spans), strict=True):
        wire.both(mine, wire.rank ^ bit, other, wire.rank ^ bit)


def _bits_below(power: int) -> list[int]:
    """1, 2, 4, ... below ``power``."""
    return [1 << place for place in range(power.bit_length() - 1)]


def _power_above(number: int) -> int:
    """The smallest power of two that is not below ``number``."""
    return 1 << (number - 1).bit_length()
