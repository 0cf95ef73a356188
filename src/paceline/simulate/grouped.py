"""Groups of workers (hybrid) in a simulation: each is one worker, as slow as the slowest of its members.

Says what a group's window and its ways to the server take, and what that means for each member. Inside a
group exchanges take nothing. Knows no strategy and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from paceline.errors import UsageError
from paceline.simulate.draws import Floats
from paceline.simulate.timing import Exchanges, StepTimes, window_times
from paceline.simulate.windows import Wholes, Windows


def check_groups(workers: int, size: int | None) -> int:
    """The ``size`` of a group, if ``workers`` fill groups of it. Raises UsageError."""
    if size is None:
        raise UsageError(
            "Which workers are a group? Give --group-size, or per_node in the cluster file's [network]."
        )
    if size < 1 or workers % size:
        raise UsageError(
            f"groups of {size} and {workers} workers cannot work together: in a simulation groups are of "
            f"equal size. Give as --group-size a divisor of {workers}."
        )
    return size


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupTimes:
    """Groups of ``size`` of the ``cluster``'s workers as workers, whose step is a window of
    ``accumulate`` micro-batches of each member: over when the slowest one's is."""

    cluster: StepTimes
    size: int
    accumulate: int

    @property
    def count(self) -> int:
        """Groups."""
        return self.cluster.count // self.size

    @property
    def regular_s(self) -> float:
        """A window of a member that nothing is wrong with, on average."""
        return self.cluster.regular_s * self.accumulate

    def members_s(self, windows: int) -> Floats:
        """What each window takes each member: shape (windows, workers), in seconds."""
        return window_times(self.cluster, windows, self.accumulate)

    def step_times_s(self, steps: int) -> Floats:
        """Shape (count, steps), in seconds."""
        members_s = self.members_s(steps).reshape(steps, self.count, self.size)
        return np.ascontiguousarray(members_s.max(axis=2).T)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupWays:
    """What groups of ``size`` exchange by ``ways``: a push and a pull each, over their first members'
    links."""

    ways: Exchanges
    size: int

    @property
    def over_network(self) -> bool:
        """As it is for workers."""
        return self.ways.over_network

    @property
    def serving_s(self) -> float:
        """How long a group's push keeps the server busy."""
        return self.ways.serving_s

    @property
    def shards(self) -> int:
        """Parts of the server."""
        return self.ways.shards

    def push_times_s(self, *, workers: int, windows: int) -> Floats:
        """Shape (windows, groups)."""
        every_s = self.ways.push_times_s(workers=workers * self.size, windows=windows)
        return every_s[:, :: self.size]

    def pull_times_s(self, *, workers: int, windows: int) -> Floats:
        """Shape (windows, groups)."""
        every_s = self.ways.pull_times_s(workers=workers * self.size, windows=windows)
        return every_s[:, :: self.size]

    def all_reduce_times_s(self, *, workers: int, rounds: int) -> Floats:
        """Shape (rounds,): as if groups were workers."""
        return self.ways.all_reduce_times_s(workers=workers, rounds=rounds)

    def in_parts(self, parts: int) -> GroupWays:
        """What groups exchange of one of so many equal parts of the parameters."""
        return replace(self, ways=self.ways.in_parts(parts))


def of_members(windows: Windows, groups: GroupTimes) -> Windows:
    """The ``windows`` of ``groups``, as those of their members: each of a group's is one of all its
    members, who begin together, and whose push is the group's."""
    size = groups.size
    number = _numbers(windows)
    ranks = windows.rank[:, np.newaxis] * size + np.arange(size)
    took_s = groups.members_s(int(number.max(initial=0)) + 1)[number[:, np.newaxis], ranks]
    start_s = np.repeat(windows.start_s, size)
    return replace(
        windows, workers=windows.workers * size, rank=ranks.ravel(), start_s=start_s,
        end_s=start_s + took_s.ravel(), applied=np.repeat(windows.applied, size),
        lag=np.repeat(windows.lag, size),
    )  # fmt: skip


def _numbers(windows: Windows) -> Wholes:
    """Which of its worker's windows each is: 0, 1, ..."""
    order = np.lexsort((windows.start_s, windows.rank))
    ranks = windows.rank[order]
    first = np.searchsorted(ranks, ranks, side="left")
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.arange(len(order)) - first
    return numbers
