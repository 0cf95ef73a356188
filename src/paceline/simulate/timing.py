"""What a simulation asks of a cluster: how long windows take, and what lies between the workers.

Knows no strategy and no file; times are in seconds.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from paceline.simulate.draws import Floats


class StepTimes(Protocol):
    """What a simulation asks of a cluster: :class:`paceline.simulate.cluster.ClusterModel` and
    :class:`paceline.simulate.recorded.RecordedTimes`."""

    @property
    def count(self) -> int:
        """Workers."""

    @property
    def regular_s(self) -> float:
        """A step of a worker that nothing is wrong with, on average."""

    def step_times_s(self, steps: int) -> Floats:
        """Shape (count, steps), in seconds."""


class Exchanges(Protocol):
    """What a simulation asks of whatever lies between the workers:
    :class:`paceline.simulate.network.Network` and
    :class:`paceline.simulate.recorded_ways.RecordedWays`. Times in seconds."""

    @property
    def over_network(self) -> bool:
        """Whether workers are on several hosts, where plain sync is by all-reduce."""

    @property
    def serving_s(self) -> float:
        """How long a push keeps the server busy."""

    @property
    def shards(self) -> int:
        """Parts of the server."""

    def push_times_s(self, *, workers: int, windows: int) -> Floats:
        """Shape (windows, workers)."""

    def pull_times_s(self, *, workers: int, windows: int) -> Floats:
        """Shape (windows, workers)."""

    def all_reduce_times_s(self, *, workers: int, rounds: int) -> Floats:
        """Shape (rounds,)."""

    def in_parts(self, parts: int) -> Exchanges:
        """What is crossed by one of so many equal parts of the parameters."""


def window_times(cluster: StepTimes, windows: int, accumulate: int) -> Floats:
    """What each window takes: shape (windows, workers), in seconds."""
    with np.errstate(over="ignore", invalid="ignore"):  # what comes of that is refused by name
        steps_s = cluster.step_times_s(windows * accumulate)
    if accumulate > 1:
        steps_s = steps_s.reshape(cluster.count, windows, accumulate).sum(axis=2)
    return np.ascontiguousarray(steps_s.T)
