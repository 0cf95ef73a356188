"""What ranks of the collective plane agree on with each window, as numbers that can be summed.

Flags travel as counts and a bad parameter as its number in the rank's own slot: a sum loses none of
them, whereas a maximum of floats loses NaN, depending on which rank holds it. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack, unpack


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """One rank's part of a window. ``batches``: loader batches it had; ``bad``: the place of its
    first parameter with a non-finite gradient; ``used``: one byte a parameter. ``broken``: gradients
    are on their way that are no longer meant."""

    weight: float
    batches: int
    bad: int | None
    stop: bool
    used: bytes
    broken: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """All ranks' votes together. ``bad``: (rank, place of the parameter) for each rank that has one.
    ``used``: whether any rank used the parameter; ``broken``: the ranks that say so."""

    weight: float
    batches: int
    bad: tuple[tuple[int, int], ...]
    stop: bool
    used: tuple[bool, ...]
    broken: tuple[int, ...]


def ballot(vote: Vote, *, rank: int, world_size: int) -> list[float]:
    """The vote as numbers that float32 holds; their sum over all ranks is what :func:`tally` reads.

    A weight may need more digits: it travels as a float32 and what that leaves, in the rank's slots.
    """
    coarse = unpack("f", pack("f", vote.weight))[0]
    verdict = -1.0 if vote.broken else 0.0 if vote.bad is None else 1.0 + vote.bad
    slots = [0.0] * (3 * world_size)
    slots[3 * rank : 3 * rank + 3] = coarse, vote.weight - coarse, verdict
    return [float(vote.batches), float(vote.stop), *slots, *map(float, vote.used)]


def ballot_size(world_size: int, parameters: int) -> int:
    """How many numbers a ballot has."""
    return 2 + 3 * world_size + parameters


def tally(sums: Sequence[float], *, world_size: int) -> Tally:
    """The summed ballots as one result, the same on every rank."""
    slots, used = sums[2 : 2 + 3 * world_size], sums[2 + 3 * world_size :]
    verdicts = [(rank, round(verdict)) for rank, verdict in enumerate(slots[2::3]) if verdict]
    return Tally(
        weight=math.fsum([*slots[0::3], *slots[1::3]]),
        batches=round(sums[0]),
        bad=tuple((rank, verdict - 1) for rank, verdict in verdicts if verdict > 0),
        stop=sums[1] > 0,
        used=tuple(count > 0 for count in used),
        broken=tuple(rank for rank, verdict in verdicts if verdict < 0),
    )
