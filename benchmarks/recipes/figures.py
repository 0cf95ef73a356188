"""From curves to the figures of the table: paired differences, bounds, times. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan, sqrt
from statistics import mean, stdev

from recipes.store import Point

T_90 = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383)
"""Student's t, 90 % one-sided, for 1 to 9 degrees of freedom."""


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; nan for a single value."""
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else nan


def upper_bound(values: Sequence[float]) -> float:
    """The mean is below this with 90 % confidence (normal values)."""
    freedom = len(values) - 1
    return mean(values) + T_90[min(freedom, 9) - 1] * standard_error(values) if freedom else inf


def time_to(curve: Sequence[Point], target: float) -> float:
    """Seconds until the score, between epochs on a line, reaches ``target``; inf if never."""
    before = None
    for point in curve:
        if point.score >= target:
            if before is None:
                return point.time_s
            share = (target - before.score) / (point.score - before.score)
            return before.time_s + share * (point.time_s - before.time_s)
        before = point
    return inf


def mean_curve(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """Epoch by epoch the means over runs of equal length."""
    return [
        Point(
            time_s=mean(point.time_s for point in at),
            samples=mean(point.samples for point in at),
            score=mean(point.score for point in at),
        )
        for at in zip(*curves, strict=True)
    ]
