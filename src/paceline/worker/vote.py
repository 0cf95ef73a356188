"""What ranks of the collective plane agree on with each window, as numbers that can be summed.

Flags travel as counts and a bad parameter as its number in the rank's own slot: a sum loses none of
them, whereas a maximum of floats loses NaN, depending on which rank holds it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """One rank's part of a window. ``batches``: loader batches it had; ``bad``: the place of its
    first parameter with a non-finite gradient; ``used``: one byte a parameter."""

    weight: float
    batches: int
    bad: int | None
    stop: bool
    used: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """All ranks' votes together. ``bad``: (rank, place of the parameter) for each rank that has one.
    ``used``: whether any rank used the parameter."""

    weight: float
    batches: int
    bad: tuple[tuple[int, int], ...]
    stop: bool
    used: tuple[bool, ...]


def ballot(vote: Vote, *, rank: int, world_size: int) -> list[float]:
    """The vote as float64 numbers; their sum over all ranks is what :func:`tally` reads."""
    slots = [0.0] * world_size
    slots[rank] = 0.0 if vote.bad is None else 1.0 + vote.bad
    return [vote.weight, float(vote.batches), float(vote.stop), *slots, *map(float, vote.used)]


def ballot_bytes(world_size: int, parameters: int) -> int:
    """What a ballot weighs on the wire."""
    return 8 * (3 + world_size + parameters)


def tally(sums: Sequence[float], *, world_size: int) -> Tally:
    """The summed ballots as one result, the same on every rank."""
    slots, used = sums[3 : 3 + world_size], sums[3 + world_size :]
    return Tally(
        weight=sums[0],
        batches=round(sums[1]),
        bad=tuple((rank, round(slot) - 1) for rank, slot in enumerate(slots) if slot),
        stop=sums[2] > 0,
        used=tuple(count > 0 for count in used),
    )
