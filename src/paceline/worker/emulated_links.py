"""Reproduces a cluster's links on this machine by sleeping where something is on its way.

A sender that sleeps before it sends is what a slow link looks like to everybody else; one that sleeps
once it was let through is what parameters look like that take long to come. Nobody is held by either
but the worker whose link it is. Under all-reduce everyone sleeps for the collective's time before
entering it, so that it ends that long after the last has come. The model says how long
(:mod:`paceline.simulate.network`); the sleep is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from paceline.simulate.cluster import ClusterModel
from paceline.worker.plane import Window
from paceline.worker.planes import PlaneName

WaySeconds = Callable[[int], float]
"""How long the way of a worker's window number 0, 1, ... takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ways:
    """What one worker's windows cross: ``pull_s`` before they start, ``push_s`` when they are done."""

    pull_s: WaySeconds
    push_s: WaySeconds


class EmulatedLinks:
    """Sleeps for one worker, window by window: :meth:`pulled`, then :meth:`push`."""

    def __init__(self, ways: Ways, sleep_s: Callable[[float], None]) -> None:
        self._ways = ways
        self._sleep_s = sleep_s
        self._number = -1

    def pulled(self, window: Window) -> Window:
        """Return when the parameters of ``window``, which may start, would have come; the time counts
        as its pull."""
        self._number += 1
        way_s = self._ways.pull_s(self._number)
        self._pass(way_s)
        return replace(window, pull_s=window.pull_s + way_s)

    def push(self) -> None:
        """Return when the gradient of the window would be there."""
        self._pass(self._ways.push_s(self._number))

    def _pass(self, way_s: float) -> None:
        if way_s > 0:
            self._sleep_s(way_s)


def links_of(
    cluster: ClusterModel | None,
    plane: PlaneName,
    *,
    rank: int,
    workers: int,
    sleep_s: Callable[[float], None],
) -> EmulatedLinks | None:
    """The links of ``rank``; None if the cluster has none, or the worker is alone."""
    network = None if cluster is None else cluster.network
    if network is None or plane == "local":
        return None
    if plane == "server":
        ways = Ways(
            pull_s=lambda number: network.pull_s(rank=rank, number=number),
            push_s=lambda number: network.push_s(rank=rank, number=number),
        )
    else:
        ways = Ways(
            pull_s=lambda _: 0.0,
            push_s=lambda number: network.all_reduce_s(workers=workers, number=number),
        )
    return EmulatedLinks(ways, sleep_s)
