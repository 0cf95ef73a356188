"""The arithmetic of the benchmark: step times, paired ratios, distances. Pure; starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_STEPS = 3


def step_s(ranks: Sequence[Mapping[str, Any]]) -> float:
    """Seconds a step of a block took, from what each rank says: ``begin_s, end_s, steps``.

    All ranks' steps over the block's wall time, times the number of ranks: where batches are handed
    out on demand ranks do different numbers of steps. Raises ValueError if none was done.
    """
    worked = [rank for rank in ranks if rank["steps"]]
    if not worked:
        raise ValueError("a block without a step")
    wall_s = max(rank["end_s"] for rank in ranks) - min(rank["begin_s"] for rank in worked)
    return float(wall_s * len(ranks) / sum(rank["steps"] for rank in worked))


def steps_for(block_s: float, one_step_s: float) -> int:
    """Steps that make a block of about ``block_s`` seconds, at least :data:`MIN_STEPS`."""
    return max(MIN_STEPS, round(block_s / one_step_s))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """The ratio of each pair."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def drift(
    ours: NDArray[np.float32], theirs: NDArray[np.float32], initial: NDArray[np.float32]
) -> float:
    """How far apart two trainings ended, as a share of the way that the other one went.

    Raises ValueError if the shapes differ or nothing moved.
    """
    way = float(np.linalg.norm(theirs - initial))
    if ours.shape != theirs.shape or not way > 0:
        raise ValueError(f"cannot compare {ours.shape} with {theirs.shape}, moved by {way}")
    return float(np.linalg.norm(ours - theirs)) / way


def unequal_losses(ours: float, theirs: float, initial: float, within: float) -> str:
    """Why two losses after equal work are not close, or ``""``. ``within``: relative."""
    if not theirs < initial:
        return f"the peer's loss did not fall: {initial:.5g} -> {theirs:.5g}"
    if not abs(ours - theirs) <= within * theirs:
        return f"loss {ours:.5g}, the peer's {theirs:.5g}: more than {within:.0%} apart"
    return ""
