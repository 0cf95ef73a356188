"""How fast one process and several at once copy, compute and add up together: what a group of ranks sees.

Knows no backend; the barrier and the all-reduce are the wire's. Every rank calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.measure.all_reduce import AllReduce
from paceline.measure.links import Clock
from paceline.measure.wire import Array, Wire, barrier, gather

COPIED_BYTES = 2**26
SIDE = 384
ALL_REDUCE_BYTES = 4_000_000
SPELL_S = 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Speeds:
    """Rates of work a second: ``alone`` one process's, ``together`` of all ``processes`` at once, added up.
    ``copy``: bytes read and written; ``compute``: floating-point operations of float32 matrix products.
    ``all_reduce_s``: of :data:`ALL_REDUCE_BYTES` over loopback."""

    processes: int
    copy_alone: float
    copy_together: float
    compute_alone: float
    compute_together: float
    all_reduce_s: float


def speeds(wire: Wire, all_reduce: AllReduce, clock: Clock) -> Speeds | None:
    """On rank 0; None elsewhere. Takes about four :data:`SPELL_S`."""
    found = []
    for work, amount in (_copying(), _computing()):
        for everybody in (False, True):
            barrier(wire)
            acts = everybody or wire.rank == 0
            own = _rate(work, clock) * amount if acts else 0.0
            rows = gather(wire, np.array([own]))
            found.append(float(rows.sum()))
    all_reduce_s = _all_reduce_s(wire, all_reduce, clock)
    if wire.rank:
        return None
    return Speeds(
        processes=wire.world_size, copy_alone=found[0], copy_together=found[1],
        compute_alone=found[2], compute_together=found[3], all_reduce_s=all_reduce_s,
    )  # fmt: skip


def _copying() -> tuple[Callable[[], None], float]:
    source, target = np.ones(COPIED_BYTES // 8), np.zeros(COPIED_BYTES // 8)
    return lambda: np.copyto(target, source), 2.0 * COPIED_BYTES


def _computing() -> tuple[Callable[[], None], float]:
    left: Array = np.ones((SIDE, SIDE), dtype=np.float32)
    out = np.empty_like(left)

    def multiply() -> None:
        np.matmul(left, left, out=out)

    return multiply, 2.0 * SIDE**3


def _rate(work: Callable[[], None], clock: Clock) -> float:
    """Times a second that ``work`` is done, over a spell."""
    work()
    began_s, times = clock(), 0
    while (spent_s := clock() - began_s) < SPELL_S:
        work()
        times += 1
    return times / spent_s


def _all_reduce_s(wire: Wire, all_reduce: AllReduce, clock: Clock) -> float:
    array = np.ones(ALL_REDUCE_BYTES // 4, dtype=np.float32)
    spent = []
    for _ in range(7):
        barrier(wire)
        began_s = clock()
        all_reduce(wire, array)
        spent.append(clock() - began_s)
    return float(np.median(spent[1:]))
