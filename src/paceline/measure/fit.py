"""Latency and bandwidth of one link, from timed transfers. Pure.

    time of a transfer = alpha + size / bytes_per_s

alpha is the lower quartile of half round trips of a few bytes: by one clock alone the two directions
cannot be told apart. Bandwidth is 1 / the median slope between the sizes' lower quartiles (Theil 1950).
What is the same at every size drops out of a slope: the answer's way, and the bucket of a token-bucket
filter, which lets the first bytes through for nothing. Other work on the machines only ever adds, and
more to longer transfers: so not the medians. On a quiet machine they are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from statistics import NormalDist

import numpy as np

from paceline.measure.wire import Array

QUARTILES = NormalDist().inv_cdf(0.75) * 2
"""Between the quartiles of a normal distribution lie so many standard deviations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """One way, in seconds: ``p50_s`` is the median, ``p99_s`` so long or less in 99 of 100.

    ``base_s`` and ``jitter_s``: base + jitter * Exp(1) has these quartiles.
    """

    alpha_s: float
    p50_s: float
    p99_s: float
    base_s: float
    jitter_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Bandwidth:
    """``spread``: relative standard deviation of the transfers of one size, in the middle half."""

    bytes_per_s: float
    spread: float


def latency(round_trips_s: Array) -> Latency:
    """Of one link, from the seconds of its round trips."""
    ways_s = np.asarray(round_trips_s) / 2
    low, middle, high, p99 = (float(q) for q in np.quantile(ways_s, (0.25, 0.5, 0.75, 0.99)))
    jitter_s = min((high - low) / log(3), middle / log(2))  # else the base were below zero
    base_s = max(middle - jitter_s * log(2), 0.0)
    return Latency(alpha_s=low, p50_s=middle, p99_s=p99, base_s=base_s, jitter_s=jitter_s)


def bandwidth(sizes_bytes: Array, times_s: Array) -> Bandwidth:
    """Of one direction of a link; shapes (transfers,). Sizes must differ.

    Where transfers of any size take the same time the bandwidth is infinite.
    """
    sizes, times = np.asarray(sizes_bytes, dtype=float), np.asarray(times_s, dtype=float)
    each = np.unique(sizes)
    if len(each) < 2:
        raise ValueError("transfers of one size have no slope")
    quick = np.array([np.quantile(times[sizes == size], 0.25) for size in each])
    one, other = np.triu_indices(len(each), k=1)
    slope = float(np.median((quick[other] - quick[one]) / (each[other] - each[one])))
    return Bandwidth(bytes_per_s=1 / slope if slope > 0 else inf, spread=_spread(sizes, times))


def _spread(sizes: Array, times: Array) -> float:
    largest = times[sizes == sizes.max()]
    low, middle, high = np.quantile(largest, (0.25, 0.5, 0.75))
    return float((high - low) / QUARTILES / middle) if middle > 0 else 0.0
