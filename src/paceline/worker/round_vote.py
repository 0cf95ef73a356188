"""What replicas tell each other before they average, as numbers that can be summed.

Every rank has a row of its own, so that a sum loses nothing of what it says. Where parameters meet in
fragments a rank has a weight in each. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_FIELDS = 5
"""Beside the weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """One rank's ``windows`` since the last exchange; ``updates``: how many of them were applied, with
    so many loader ``batches``. ``weights``: what was applied since each fragment's own last exchange.
    ``stop``: the user's flag; ``over``: it has no batch left in this pass."""

    weights: tuple[float, ...]
    windows: int
    updates: int
    batches: int
    stop: bool
    over: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreed:
    """All ranks' votes together. ``shares``: of each fragment those of all ranks in the mean; all 0 if
    nothing was applied. ``windows``, ``updates``: the most that a rank had; ``batches``: of all;
    ``going_on``: how many ranks have batches left in the pass; ``ended``: it is over for everyone."""

    shares: tuple[tuple[float, ...], ...]
    windows: int
    updates: int
    batches: int
    going_on: int
    ended: bool


def ballot_bytes(world_size: int, *, fragments: int = 1) -> int:
    """What a ballot is on the wire."""
    return 8 * (_FIELDS + fragments) * world_size


def ballot(vote: Vote, *, rank: int, world_size: int) -> list[float]:
    """The vote as float64 numbers; their sum over all ranks is what :func:`tally` reads."""
    own = (vote.windows, vote.updates, vote.batches, vote.stop, vote.over, *vote.weights)
    rows = [0.0] * (len(own) * world_size)
    rows[len(own) * rank : len(own) * (rank + 1)] = map(float, own)
    return rows


def tally(sums: Sequence[float], *, fragments: int = 1) -> Agreed:
    """The summed ballots as one result, the same on every rank."""
    fields = _FIELDS + fragments
    windows, updates, batches, stops, overs, *weights = (sums[at::fields] for at in range(fields))
    return Agreed(
        shares=tuple(map(_shares, weights)),
        windows=round(max(windows)),
        updates=round(max(updates)),
        batches=round(math.fsum(batches)),
        going_on=overs.count(0.0),
        ended=any(stops) or all(overs),
    )


def _shares(weights: Sequence[float]) -> tuple[float, ...]:
    total = math.fsum(weights)
    return tuple(weight / total if total else 0.0 for weight in weights)
