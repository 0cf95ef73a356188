"""What a worker's windows cross in an emulated cluster: links to a server, or a collective.

Under all-reduce (and where replicas meet) everyone is on the way for the collective's time before it
enters it, so that it ends that long after the last has come. Says how long (as
:mod:`paceline.simulate.network` does), sleeps never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.simulate.network import Network
from paceline.strategies import Strategy, Sync, drifts

WaySeconds = Callable[[int], float]
"""How long a way takes in the worker's window number 0, 1, ..."""


def _nothing_s(_: int) -> float:
    return 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ways:
    """``pull_s``: before a window starts; ``push_s``: when it is computed. ``serving_s``: how long one
    push keeps the server busy."""

    pull_s: WaySeconds = _nothing_s
    push_s: WaySeconds = _nothing_s
    serving_s: float = 0.0


def ways_of(network: Network | None, strategy: Strategy, *, rank: int, workers: int) -> Ways:
    """The ways of ``rank`` where ``strategy`` has a topology if it has a choice of one."""
    if network is None or workers == 1:
        return Ways()
    if drifts(strategy) or (isinstance(strategy, Sync) and strategy.topology == "allreduce"):
        return Ways(push_s=lambda number: network.all_reduce_s(workers=workers, number=number))
    return Ways(
        pull_s=lambda number: network.pull_s(rank=rank, number=number),
        push_s=lambda number: network.push_s(rank=rank, number=number),
        serving_s=network.serving_s,
    )
