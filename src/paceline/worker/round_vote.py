"""What replicas tell each other before they average, as numbers that can be summed.

Every rank has a row of its own, so that a sum loses nothing of what it says. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_FIELDS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """One rank's ``windows`` since the last exchange; ``updates``: how many of them were applied, with
    what ``weight`` and so many loader ``batches``. ``stop``: the user's flag; ``over``: it has no batch
    left in this pass."""

    weight: float
    windows: int
    updates: int
    batches: int
    stop: bool
    over: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreed:
    """All ranks' votes together. ``shares``: of each rank in the mean; all 0 if nothing was applied.
    ``windows``, ``updates``: the most that a rank had; ``batches``: of all; ``ended``: the
    pass is over for everyone."""

    shares: tuple[float, ...]
    windows: int
    updates: int
    batches: int
    ended: bool


def ballot_bytes(world_size: int) -> int:
    """What a ballot is on the wire."""
    return 8 * _FIELDS * world_size


def ballot(vote: Vote, *, rank: int, world_size: int) -> list[float]:
    """The vote as float64 numbers; their sum over all ranks is what :func:`tally` reads."""
    rows = [0.0] * (_FIELDS * world_size)
    own = (vote.weight, vote.windows, vote.updates, vote.batches, vote.stop, vote.over)
    rows[_FIELDS * rank : _FIELDS * (rank + 1)] = map(float, own)
    return rows


def tally(sums: Sequence[float]) -> Agreed:
    """The summed ballots as one result, the same on every rank."""
    weights, windows, updates, batches, stops, overs = (sums[at::_FIELDS] for at in range(_FIELDS))
    total = math.fsum(weights)
    return Agreed(
        shares=tuple(weight / total if total else 0.0 for weight in weights),
        windows=round(max(windows)),
        updates=round(max(updates)),
        batches=round(math.fsum(batches)),
        ended=any(stops) or all(overs),
    )
