"""Timing of synchronisation as a max-plus recurrence: exact, vectorised over workers, no event queue.

    start_i(k) = max(pushed_i(k - 1), max_j pushed_j(k - s - 1)) + pull_ik
    pushed_i(k) = start_i(k) + c_ik + push_ik

is SSP with bound s (s = 0: sync, s = inf: async): a worker may start window k once everybody has
pushed window k - s - 1. It holds as long as nothing is contended for and nobody joins, dies or is
handed other batches than its own; the exact driver (:mod:`.driver`) is for those. The two agree to
the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf

import numpy as np
import numpy.typing as npt

from paceline.simulate.draws import Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """``start_s[k, i]``, ``finish_s[k, i]``: of window k of worker i, in seconds. ``pulled_s[k, i]``:
    when it was let through, and the version that it computes on was fixed; ``decided_s[k, i]``: when
    its push was; ``applied[k, i]``: whether it came in time (always so but for backup workers)."""

    pulled_s: Floats
    start_s: Floats
    finish_s: Floats
    decided_s: Floats
    applied: npt.NDArray[np.bool_]


def bounded(
    window_s: Floats,
    staleness: float,
    *,
    push_s: Floats | float = 0.0,
    pull_s: Floats | float = 0.0,
) -> Times:
    """SSP with bound ``staleness``; 0 is sync, inf async.

    ``window_s[k, i]``: what window k of worker i takes, in seconds; ``push_s``, ``pull_s``: what its
    gradient and its parameters are on the way, alike or for all.
    """
    steps, workers = window_s.shape
    push_s, pull_s = (np.broadcast_to(way_s, window_s.shape) for way_s in (push_s, pull_s))
    pulled_s, start_s, finish_s, decided_s = (np.empty_like(window_s) for _ in range(4))
    slowest_s = np.zeros(steps + 1)  # when the last worker had pushed window k, at k + 1
    pushed_s = np.zeros(workers)
    reach = steps if isinf(staleness) else int(staleness)
    for k in range(steps):
        if k > reach:
            np.maximum(pushed_s, slowest_s[k - reach], out=pushed_s)
        pulled_s[k] = pushed_s
        np.add(pushed_s, pull_s[k], out=start_s[k])
        np.add(start_s[k], window_s[k], out=finish_s[k])
        np.add(finish_s[k], push_s[k], out=pushed_s)
        decided_s[k] = pushed_s
        slowest_s[k + 1] = pushed_s.max()
    return Times(
        pulled_s=pulled_s, start_s=start_s, finish_s=finish_s, decided_s=decided_s,
        applied=np.ones(window_s.shape, dtype=bool),
    )  # fmt: skip


def in_rounds(window_s: Floats, windows: float, exchange_s: Floats | float = 0.0) -> Times:
    """Workers that go on without each other for ``windows`` windows (inf: for ever) and then exchange,
    as local SGD does; after the last window, too. ``exchange_s[k]``: what the exchange after window k takes
    from the last one's arrival, or one for all. A window is decided as it is computed, a round's last with it.
    """
    steps, workers = window_s.shape
    exchange_s = np.broadcast_to(exchange_s, (steps,))
    start_s, finish_s, decided_s = (np.empty_like(window_s) for _ in range(3))
    free_s = np.zeros(workers)
    for k in range(steps):
        start_s[k] = free_s
        np.add(free_s, window_s[k], out=finish_s[k])
        free_s = finish_s[k].copy()
        if windows < inf and ((k + 1) % windows == 0 or k + 1 == steps):
            free_s[:] = free_s.max() + exchange_s[k]
        decided_s[k] = free_s
    return Times(
        pulled_s=start_s, start_s=start_s, finish_s=finish_s, decided_s=decided_s,
        applied=np.ones(window_s.shape, dtype=bool),
    )  # fmt: skip


def with_backups(window_s: Floats, spares: int) -> Times:
    """Rounds that are decided by the first ``N - spares`` pushes; a late worker goes on, its push is
    dropped, and it takes part in the round that is open when it has come. ``window_s`` as above, of
    the windows that each worker computes; results have one row a round, nan where a worker has no part.
    """
    rounds, workers = window_s.shape
    quorum = max(1, workers - spares)
    start_s, finish_s, decided_s = (np.full(window_s.shape, np.nan) for _ in range(3))
    applied = np.zeros(window_s.shape, dtype=bool)
    own = np.zeros(workers, dtype=np.int64)  # how many windows each has begun
    everyone = np.arange(workers)
    free_s = np.zeros(workers)
    opened_s = 0.0
    for k in range(rounds):
        begin_s = np.maximum(free_s, opened_s)
        end_s = begin_s + window_s[own, everyone]
        closed_s = np.partition(end_s, quorum - 1)[quorum - 1]
        part = begin_s < closed_s
        start_s[k, part], finish_s[k, part] = begin_s[part], end_s[part]
        applied[k] = part & (end_s <= closed_s)
        decided_s[k, part] = np.maximum(end_s, closed_s)[part]
        free_s = np.where(part, end_s, free_s)
        own += part
        opened_s = closed_s
    return Times(
        pulled_s=start_s, start_s=start_s, finish_s=finish_s, decided_s=decided_s, applied=applied
    )
