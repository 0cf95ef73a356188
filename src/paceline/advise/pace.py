"""Throughput of each strategy on the cluster that is meant, simulated; the bandwidth that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from typing import Any

import numpy as np

from paceline.advise.outcomes import Candidate
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.network import Network
from paceline.simulate.predict import Scenario, predict
from paceline.simulate.recorded import RecordedTimes
from paceline.simulate.timing import Exchanges, StepTimes
from paceline.strategies import parse_strategy
from paceline.trials import Trial

STEPS = 120
SLOW = 1.3
"""A worker whose median step is so many times the median of the others' is slow for good."""
SLOWEST_BYTES_PER_S, FASTEST_BYTES_PER_S = 1e4, 1e12
HALVINGS = 12
CLEARLY = 1.05
FIRST_BOUND, KNEE, LARGEST_BOUND = 3, 0.9, 48
LARGEST_ROUND = 32
MOST_ACCUMULATED, ACCUMULATION_PAYS = 8, 1.15


@dataclass(kw_only=True)
class Pace:
    """Simulated throughput. ``times``: of the cluster, ``network`` between its workers.

    Results are kept: rules ask for the same ones.
    """

    times: StepTimes
    network: Exchanges | None = None
    known: dict[Candidate, float] = field(default_factory=dict)

    def batches_per_s(self, candidate: Candidate) -> float:
        """Micro-batches a second that are applied."""
        if candidate not in self.known:
            self.known[candidate] = self._simulated(candidate)
        return self.known[candidate]

    def gain(self, trial: Trial) -> float:
        """Throughput over sync's, of as many workers."""
        workers = self.times.count
        return self.batches_per_s(Candidate(trial=trial, workers=workers)) / self.batches_per_s(
            Candidate(trial=Trial(strategy="sync"), workers=workers)
        )

    def slow_ranks(self) -> dict[int, float]:
        """Workers that are slow for good, and how many times slower than the median of the others."""
        typical = np.median(self.times.step_times_s(STEPS), axis=1)
        ratios = {
            rank: float(typical[rank] / np.median(np.delete(typical, rank)))
            for rank in range(self.times.count)
            if self.times.count > 1
        }
        return {rank: ratio for rank, ratio in ratios.items() if ratio >= SLOW}

    def repaired(self) -> float:
        """Sync's throughput over today's, if nobody were slow for good."""
        factors = self.slow_ranks()
        times = self.times.step_times_s(STEPS)
        for rank, factor in factors.items():
            times[rank] /= factor
        healthy = Pace(times=RecordedTimes(own_s=tuple(times)), network=self.network)
        sync = Candidate(trial=Trial(strategy="sync"), workers=self.times.count)
        return healthy.batches_per_s(sync) / self.batches_per_s(sync)

    def at_bandwidth(self, bytes_per_s: float, size_bytes: float) -> Pace:
        """The same workers, each with a link of this bandwidth, and so the server."""
        network = self.network if isinstance(self.network, Network) else Network()
        links = replace(
            network.links,
            every=replace(network.links.every, bytes_per_s=bytes_per_s),
            own=tuple(
                replace(one, link=replace(one.link, bytes_per_s=bytes_per_s))
                for one in network.links.own
            ),
        )
        limited = replace(
            network, links=links, server_bytes_per_s=bytes_per_s,
            size_bytes=network.size_bytes or size_bytes,
        )  # fmt: skip
        return Pace(times=self.times, network=limited)

    def _simulated(self, candidate: Candidate) -> float:
        accumulate = candidate.trial.accumulate
        scenario = Scenario(
            cluster=_of(self.times, candidate.workers), steps=max(20, STEPS // accumulate),
            accumulate=accumulate, network=self.network,
        )  # fmt: skip
        prediction, _ = predict(parse_strategy(candidate.trial.strategy), scenario)
        return prediction.windows_per_s * accumulate


def knee_bound(pace: Pace) -> int:
    """The smallest bound, doubled from 3 on, with nine tenths of the throughput of no bound."""
    enough = KNEE * pace.gain(Trial(strategy="async"))
    bound = FIRST_BOUND
    while bound < LARGEST_BOUND and pace.gain(Trial(strategy=f"ssp:{bound}")) < enough:
        bound *= 2
    return bound


def knee_windows(pace: Pace) -> int:
    """The fewest windows between two meetings of replicas, doubled from 2 on, with nine tenths of the
    throughput of those that never meet."""
    enough = KNEE * pace.gain(Trial(strategy="local:inf"))
    windows = 2
    while windows < LARGEST_ROUND and pace.gain(Trial(strategy=f"local:{windows}")) < enough:
        windows *= 2
    return windows


def knee_accumulation(pace: Pace) -> int:
    """The smallest power of two from which doubling the window gains less than 15 %; 1: it does not pay."""
    k = 1
    while k < MOST_ACCUMULATED:
        now, then = (pace.gain(accumulating(one)) for one in (k, 2 * k))
        if then < ACCUMULATION_PAYS * now:
            return k
        k *= 2
    return k


def accumulating(k: int) -> Trial:
    """Sync with windows of ``k`` micro-batches."""
    return Trial(strategy="sync", options=(("accumulate", k),) if k > 1 else ())


def crossing(wins: Callable[[float], bool]) -> float | None:
    """The bandwidth, in bytes a second, below which ``wins`` no longer holds; bisected on a log scale.

    None if it holds, or does not, over the whole range.
    """
    low, high = SLOWEST_BYTES_PER_S, FASTEST_BYTES_PER_S
    if wins(low) or not wins(high):
        return None
    for _ in range(HALVINGS):
        middle = sqrt(low * high)
        low, high = (low, middle) if wins(middle) else (middle, high)
    return high


def loses_below(
    pace: Pace,
    best: Candidate,
    other: Candidate,
    *,
    best_s: float,
    other_s: float,
    size_bytes: float,
) -> float | None:
    """The bandwidth below which ``best`` takes clearly longer to the target than ``other``.

    ``best_s``, ``other_s``: times to target with today's network. Each changes as its throughput does.
    """  # fmt: skip
    if not 0 < other_s < inf:
        return None
    work = best_s * pace.batches_per_s(best), other_s * pace.batches_per_s(other)

    def wins(bytes_per_s: float) -> bool:
        there = pace.at_bandwidth(bytes_per_s, size_bytes)
        ours_s = work[0] / there.batches_per_s(best)
        theirs_s = work[1] / there.batches_per_s(other)
        return ours_s <= CLEARLY * theirs_s

    return crossing(wins)


def _of(times: StepTimes, workers: int) -> Any:
    if workers == times.count:
        return times
    if isinstance(times, ClusterModel):
        return replace(times, count=workers)
    assert isinstance(times, RecordedTimes)
    return times.of(workers)
