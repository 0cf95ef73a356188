"""Times every link of a group, in both directions, in rounds of disjoint pairs. Knows no backend.

A transfer is timed by its sender, from the first byte until the receiver's answer (8 bytes) that all has
come: one clock is enough. Before anything counts both sides say that they are warm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.measure.rounds import partner, tournament
from paceline.measure.wire import Array, Wire, barrier, gather

Clock = Callable[[], float]

PILOT_BYTES = 2**20
LARGEST_BYTES = 2**26
SMALLEST_BYTES = 2**19
"""Of the largest transfer. A token-bucket filter lets some 100 kB through at any speed."""
SHARES = (0.25, 0.5, 1.0)
"""Sizes of the timed transfers, as shares of the largest."""
ENOUGH_WARM_UP, MOST_WARM_UP = 10, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """``transfer_s``: what the largest transfer should take; ``round_trips``, and ``repeats`` of each size,
    of one direction in one of the ``passes``."""

    passes: int = 4
    round_trips: int = 50
    repeats: int = 3
    transfer_s: float = 0.1

    @property
    def transfers(self) -> int:
        """Timed transfers of one direction in one pass."""
        return self.repeats * len(SHARES)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One pass. ``round_trips_s``: shape (ranks, ranks, round trips); ``sizes_bytes`` and ``times_s``:
    shape (ranks, ranks, transfers); [a, b] is what a sent to b. NaN on the diagonal."""

    round_trips_s: Array
    sizes_bytes: Array
    times_s: Array


def time_links(wire: Wire, effort: Effort, clock: Clock) -> Timed | None:
    """One pass over all links; the times of all ranks on rank 0, None elsewhere."""
    own = np.full((wire.world_size, effort.round_trips + 2 * effort.transfers), np.nan)
    for pairs in tournament(wire.world_size):
        barrier(wire)
        other = partner(pairs, wire.rank)
        if other is not None:
            own[other] = _both_directions(wire, other, effort, clock)
    rows = gather(wire, own)
    if wire.rank:
        return None
    ends = [effort.round_trips, effort.round_trips + effort.transfers]
    round_trips_s, sizes, times_s = np.split(rows, ends, axis=2)
    return Timed(round_trips_s=round_trips_s, sizes_bytes=sizes, times_s=times_s)


def _both_directions(wire: Wire, other: int, effort: Effort, clock: Clock) -> Array:
    """What this rank timed: round trips, sizes, times."""
    _warm_up(wire, other, clock)
    if wire.rank < other:
        timed = _lead(wire, other, effort, clock)
        _follow(wire, other, effort)
        return timed
    _follow(wire, other, effort)
    return _lead(wire, other, effort, clock)


def _warm_up(wire: Wire, other: int, clock: Clock) -> None:
    """Short messages to and fro until both say that they no longer get faster."""
    own, others = np.zeros(1), np.zeros(1)
    best_s, count, agreed = np.inf, 0, False
    while not agreed:
        began_s = clock()
        wire.both(own, other, others, other)
        took_s = clock() - began_s
        agreed = bool(own[0] and others[0])
        count += 1
        if count >= MOST_WARM_UP or (count >= ENOUGH_WARM_UP and took_s > 0.9 * best_s):
            own = np.ones(1)
        best_s = min(best_s, took_s)


def _lead(wire: Wire, other: int, effort: Effort, clock: Clock) -> Array:
    token = np.zeros(1)

    def timed(payload: Array) -> float:
        began_s = clock()
        wire.send(payload, other)
        wire.recv(token, other)
        return clock() - began_s

    round_trips_s = [timed(token) for _ in range(effort.round_trips)]
    pilot = np.zeros(PILOT_BYTES, dtype=np.uint8)
    rate = PILOT_BYTES / min(timed(pilot) for _ in range(2))
    largest = int(np.clip(rate * effort.transfer_s, SMALLEST_BYTES, LARGEST_BYTES))
    wire.send(np.array([largest], dtype=np.int64), other)
    wire.recv(token, other)  # its memory is ready
    payload = np.ones(largest, dtype=np.uint8)
    sizes = _sizes(largest, effort)
    times_s = [timed(payload[:size]) for size in sizes]
    return np.array([*round_trips_s, *sizes, *times_s])


def _follow(wire: Wire, other: int, effort: Effort) -> None:
    token = np.zeros(1)

    def answer(payload: Array) -> None:
        wire.recv(payload, other)
        wire.send(token, other)

    for _ in range(effort.round_trips):
        answer(token)
    pilot = np.zeros(PILOT_BYTES, dtype=np.uint8)
    for _ in range(2):
        answer(pilot)
    largest = np.zeros(1, dtype=np.int64)
    wire.recv(largest, other)
    payload = np.ones(int(largest[0]), dtype=np.uint8)
    wire.send(token, other)
    for size in _sizes(int(largest[0]), effort):
        answer(payload[:size])


def _sizes(largest: int, effort: Effort) -> list[int]:
    """In turn, so that a disturbance does not meet one size alone."""
    return [int(share * largest) for _ in range(effort.repeats) for share in SHARES]
