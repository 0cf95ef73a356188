"""The server plane beside all-reduce: how long an exchange takes at each size, and which is faster where.

Reads the trace of a run that made one Worker a size. Knows nothing of how it was run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from paceline.compare.units import duration, size
from paceline.diagnose.generations import generations
from paceline.measure.sweep import Timing
from paceline.runs import Run

SERVER = "server"
"""What this plane is called where all-reduces have their names."""
USED = "gloo"
"""The all-reduce that the collective plane uses."""
ROUNDS, WARM_UP = 28, 4
"""Windows of each size, and how many of them do not count."""


def exchanges(run: Run) -> list[Timing]:
    """Push to pull at each size: the slowest rank's, the median of all rounds.

    A rank's exchange is counted without its wait for the others to push, as an all-reduce is from the moment
    at which all have begun. It includes the server's optimizer step (SGD), which an all-reduce leaves to do.
    """
    return [_timing(one) for one in generations(run)]


def _timing(run: Run) -> Timing:
    rows = zip(*(rank.steps[WARM_UP:] for rank in run.ranks), strict=True)
    slowest_s = [max(step.exchange_s + step.pull_s for step in row) for row in rows]
    return Timing(
        algorithm=SERVER,
        size_bytes=run.setup.parameter_bytes,
        seconds=float(np.median(slowest_s)),
    )


def which_is_faster(timings: Sequence[Timing]) -> str:
    """From which size on which plane is faster, in a sentence; "" where only one of them was timed."""
    by_name = {
        name: {one.size_bytes: one.seconds for one in timings if one.algorithm == name}
        for name in (SERVER, USED)
    }
    shared = sorted(by_name[SERVER].keys() & by_name[USED].keys())
    if not shared:
        return ""
    stretches = ", ".join(_stretches(by_name[SERVER], by_name[USED], shared))
    return f"The faster plane on this host: {stretches}."


def _stretches(
    server_s: dict[int, float], used_s: dict[int, float], sizes: Sequence[int]
) -> Iterator[str]:
    """One clause for each stretch of sizes in which the same plane is faster."""
    for is_server, group in groupby(sizes, key=lambda one: server_s[one] <= used_s[one]):
        own = list(group)
        last = own[-1]
        fast, slow = (server_s, used_s) if is_server else (used_s, server_s)
        name = "sync:server" if is_server else "sync:allreduce"
        figures = f"{duration(fast[last])} against {duration(slow[last])} at {size(last)}"
        yield f"{_where(own, sizes)} {name} ({figures})"


def _where(own: Sequence[int], sizes: Sequence[int]) -> str:
    if len(own) == len(sizes):
        return "at all sizes"
    if own[0] == sizes[0]:
        return f"up to {size(own[-1])}"
    return (
        f"from {size(own[0])} on"
        if own[-1] == sizes[-1]
        else f"from {size(own[0])} to {size(own[-1])}"
    )
