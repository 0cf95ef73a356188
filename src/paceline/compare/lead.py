"""The largest clock lead at a start, from the recorded decisions: what SSP promises to bound."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.events import Drop, Lease, Leave, Release, Start, Update

Upcoming = Mapping[int, deque[int | None]]
"""Per rank what comes next, in order: the clock of a Start, or None for the end of its pass."""


def largest_lead(decisions: Sequence[Any]) -> int | None:
    """Largest (clock - slowest clock) at any Start, in clocks; None if nothing was started.

    The slowest counts over the workers that still have windows to do in the pass: one that computes
    stands at its window's clock, one in between at the clock of the window it will start next. Needs
    the decisions in serial order.
    """
    upcoming = _upcoming(decisions)
    running: dict[int, int] = {}
    leads: list[int] = []
    for order in decisions:
        if isinstance(order, Start):
            upcoming[order.rank].popleft()
            running[order.rank] = order.clock
            leads.append(order.clock - _slowest(running, upcoming))
            continue
        if _is_end(order):
            upcoming[order.rank].popleft()
        for rank in _freed(order):
            running.pop(rank, None)
    return max(leads, default=None)


def _upcoming(decisions: Sequence[Any]) -> Upcoming:
    coming: defaultdict[int, deque[int | None]] = defaultdict(deque)
    for order in decisions:
        if isinstance(order, Start):
            coming[order.rank].append(order.clock)
        elif _is_end(order):
            coming[order.rank].append(None)
    return coming


def _slowest(running: Mapping[int, int], upcoming: Upcoming) -> int:
    waiting = [coming[0] for rank, coming in upcoming.items() if coming and rank not in running]
    return min([*running.values(), *(clock for clock in waiting if clock is not None)])


def _is_end(order: Any) -> bool:
    return isinstance(order, Release | Leave) or (isinstance(order, Lease) and order.last)


def _freed(order: Any) -> tuple[int, ...]:
    """Ranks that this decision takes out of their window."""
    if isinstance(order, Update):
        return order.ranks
    return (order.rank,) if isinstance(order, Drop) or _is_end(order) else ()
