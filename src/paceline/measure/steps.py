"""The times of a recorded run's micro-batches as the few numbers that a cluster.toml has for them. Pure.

    time = step_s * (1 + jitter * Exp(1)), now and then times a factor; a slow rank always times its own

A rank is slow for good if its median is :data:`SLOWER` times the median of the ranks' medians. A step is a
hiccup if it takes twice the median and lies ten quartile distances above it. Of the rest the quartiles give
the jitter and the mean gives ``step_s``, so that simulated workers are as fast as the recorded ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log

import numpy as np

from paceline.measure.wire import Array

SLOWER = 1.15
FAR = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StepModel:
    """``factors``: of the ranks that are slow for good. ``hiccup_share`` of the steps take
    ``hiccup_factor`` times as long. ``recorded``: steps behind it all. ``origin``: that they were
    emulated or simulated, in a clause; "" of a machine's own."""

    step_s: float
    jitter: float
    factors: dict[int, float] = field(default_factory=dict)
    hiccup_share: float = 0.0
    hiccup_factor: float = 1.0
    recorded: int = 0
    origin: str = ""


def step_model(own_s: tuple[Array, ...], *, origin: str = "") -> StepModel:
    """From the seconds of each rank's micro-batches."""
    medians = np.array([np.median(times) for times in own_s])
    usual = float(np.median(medians)) if len(medians) > 2 else float(medians.min())
    factors = {rank: float(m / usual) for rank, m in enumerate(medians) if m > SLOWER * usual}
    pooled = np.concatenate([times / factors.get(rank, 1.0) for rank, times in enumerate(own_s)])
    low, middle, high = np.quantile(pooled, (0.25, 0.5, 0.75))
    late = (pooled > middle + FAR * (high - low)) & (pooled > 2 * middle)
    mean = float(pooled[~late].mean())
    extra_s = min(float(high - low) / log(3), 0.9 * mean)
    return StepModel(
        step_s=mean - extra_s,
        jitter=extra_s / (mean - extra_s),
        factors=factors,
        hiccup_share=float(late.mean()),
        hiccup_factor=float(pooled[late].mean() / mean) if late.any() else 1.0,
        recorded=len(pooled),
        origin=origin,
    )
