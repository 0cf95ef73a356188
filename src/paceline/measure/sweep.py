"""How long each all-reduce takes at each size on a real group: which one wins where?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from paceline.measure.all_reduce import AllReduce
from paceline.measure.links import Clock
from paceline.measure.wire import Array, Wire, barrier, gather, spread

SIZES_BYTES = (1_000, 32_000, 1_000_000, 8_000_000)
CELL_S = 0.5
"""What the repeats of one all-reduce of one size should take together."""
FEWEST, MOST = 3, 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """``seconds``: from the moment at which all have begun until the last rank is done; the median."""

    algorithm: str
    size_bytes: int
    seconds: float


def sweep(
    wire: Wire,
    algorithms: Mapping[str, AllReduce],
    clock: Clock,
    check: Callable[[Array, int], None],
) -> Iterator[Timing]:
    """Every algorithm at every size, on rank 0; elsewhere nothing, but all must iterate.

    ``check`` is given the result of adding up ones, and how many ranks there are.
    """
    for size in SIZES_BYTES:
        for name, algorithm in algorithms.items():
            seconds = _median_s(wire, algorithm, size, clock, check)
            if wire.rank == 0:
                yield Timing(algorithm=name, size_bytes=size, seconds=seconds)


def winners(timings: list[Timing]) -> dict[int, str]:
    """The fastest algorithm at each size."""
    best: dict[int, Timing] = {}
    for one in timings:
        if one.size_bytes not in best or one.seconds < best[one.size_bytes].seconds:
            best[one.size_bytes] = one
    return {size: one.algorithm for size, one in best.items()}


def _median_s(
    wire: Wire, algorithm: AllReduce, size: int, clock: Clock, check: Callable[[Array, int], None]
) -> float:
    array = np.ones(size // 4, dtype=np.float32)
    first_s = _once(wire, algorithm, array, clock)
    check(array, wire.world_size)
    wished = np.array([np.clip(CELL_S / max(first_s, 1e-9), FEWEST, MOST)])
    repeats = int(spread(wire, wished)[0])
    own = np.array([_once(wire, algorithm, array, clock) for _ in range(repeats)])
    rows = gather(wire, own)
    return float(np.median(rows.max(axis=0))) if wire.rank == 0 else 0.0


def _once(wire: Wire, algorithm: AllReduce, array: Array, clock: Clock) -> float:
    array.fill(1)
    barrier(wire)
    began_s = clock()
    algorithm(wire, array)
    return clock() - began_s
