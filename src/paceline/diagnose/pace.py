"""How fast workers with given times of their own get on under a strategy: the what-if's arithmetic.

    S = T / T_ideal        share explained by w = (T - T without w's excess) / T

(What-if analysis: Lin et al., OSDI 2025.) T is not the recorded time but the recurrence's, with and
without the change, so that what the model leaves out cancels. Recorded rows are used in their order:
bursts stay bursts.
"""

from __future__ import annotations

from math import isinf

import numpy as np

from paceline.diagnose.measured import Floats, Measured
from paceline.simulate.recurrence import bounded, with_backups
from paceline.strategies import (
    SSP,
    Backup,
    DiLoCo,
    Local,
    Strategy,
    fragments_of,
    outer_of,
    windows_apart,
)

SHORTEST_S = 1e-9


def pace_s(strategy: Strategy, own_s: Floats, transfer_s: Floats | float = 0.0) -> float:
    """Seconds in which as many windows are decided as there are workers, on average.

    ``own_s[k, i]``: what window k of worker i takes; ``transfer_s``: moving it, the same shape or one.
    """
    strategy = outer_of(strategy)
    window_s = own_s + transfer_s
    windows: int = window_s.shape[0]
    workers: int = window_s.shape[1]
    if isinstance(strategy, SSP) and isinf(strategy.staleness):
        rates = 1.0 / np.maximum(window_s.mean(axis=0), SHORTEST_S)
        return workers / float(rates.sum())
    if isinstance(strategy, Backup):
        times = with_backups(window_s, min(int(strategy.spares), workers - 1))
        total_s, applied = float(np.nanmax(times.decided_s)), int(times.applied.sum())
        return total_s * workers / max(1, applied)
    staleness = strategy.staleness if isinstance(strategy, SSP) else 0
    total_s = float(bounded(window_s, staleness).decided_s.max())
    return total_s / windows


def meeting_s(strategy: Local | DiLoCo, own_s: Floats, transfer_s: Floats | float) -> float:
    """The same of replicas that go on alone between exchanges, each fragment of which moves its part."""
    apart, parts = windows_apart(strategy), fragments_of(strategy)
    if isinf(apart):
        return float(own_s.mean(axis=0).max())
    length, rounds = int(apart), max(1, round(len(own_s) / apart))
    rows = np.resize(own_s, (rounds, length, own_s.shape[1]))  # in their order, round and round
    moved_s = float(np.mean(transfer_s)) / parts
    return pace_s(SSP(staleness=0), rows.sum(axis=1), moved_s) / apart


def others_s(own_s: Floats, *, together: bool) -> Floats:
    """For each entry what the other workers took: their median in this round, or in all windows."""
    if together:
        return _median_of_others(own_s)
    columns = range(own_s.shape[1])
    medians = [np.median(np.delete(own_s, column, axis=1)) for column in columns]
    return np.broadcast_to(np.array(medians), own_s.shape).copy()


def _median_of_others(rows: Floats) -> Floats:
    """For each entry the median of its row without it: from one sort of each row."""
    order = rows.argsort(axis=1, kind="stable")
    place = order.argsort(axis=1, kind="stable")
    ranked = np.take_along_axis(rows, order, axis=1)
    middle = ((rows.shape[1] - 2) // 2, (rows.shape[1] - 1) // 2)
    low, high = (
        np.take_along_axis(ranked, np.where(place > at, at, at + 1), axis=1) for at in middle
    )
    found: Floats = (low + high) / 2.0
    return found


def relieved_s(own_s: Floats, columns: list[int], *, together: bool) -> Floats:
    """``own_s`` if these workers had taken what the others did, where that is less."""
    rest = np.delete(own_s, columns, axis=1)
    typical = np.median(rest, axis=1, keepdims=True) if together else np.median(rest)
    relieved = own_s.copy()
    relieved[:, columns] = np.minimum(relieved[:, columns], typical)
    return relieved


def saving(found: Measured, own_s: Floats) -> float:
    """The share of the time that is saved if the workers' own times were ``own_s``."""
    now_s = pace_s(found.strategy, found.own_s, found.transfer_s)
    return 1.0 - pace_s(found.strategy, own_s, found.transfer_s) / now_s if now_s > 0 else 0.0
