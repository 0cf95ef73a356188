"""What was measured of a group, as it grows part by part: the parts travel as JSON from rank 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from paceline.measure.fit import bandwidth, latency
from paceline.measure.links import Timed
from paceline.measure.sweep import Timing
from paceline.measure.wire import Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a rank is. ``interface``: over which most of its bytes went, "" if unknown; its negotiated rate.
    ``load``: processes a core that ran or wanted to before the group began."""

    host: str
    interface: str = ""
    rate_bits_per_s: float | None = None
    load: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """What ``rank`` sends to ``to``; see :mod:`paceline.measure.fit`. ``spread`` of its transfers' times."""

    rank: int
    to: int
    alpha_s: float
    p50_s: float
    p99_s: float
    base_s: float
    jitter_s: float
    bytes_per_s: float
    spread: float


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """``alphas_s`` and ``byte_costs_s`` (seconds a byte): shape (passes, ranks, ranks), one pass each.

    ``timings``: of all-reduces; ``server``: of the server plane of this host, where that was timed.
    """

    places: tuple[Place, ...] = ()
    links: tuple[Link, ...] = ()
    alphas_s: Array = field(default_factory=lambda: np.empty((0, 0, 0)))
    byte_costs_s: Array = field(default_factory=lambda: np.empty((0, 0, 0)))
    timings: tuple[Timing, ...] = ()
    complete: bool = False
    server: tuple[Timing, ...] = ()

    @property
    def ranks(self) -> int:
        """How many there are."""
        return len(self.places)

    def matrix(self, figure: str) -> Array:
        """The links' ``figure`` (the name of a field), shape (ranks, ranks), NaN on the diagonal."""
        values = np.full((self.ranks, self.ranks), np.nan)
        for one in self.links:
            values[one.rank, one.to] = getattr(one, figure)
        return values

    def across(self) -> Array:
        """Which links (True) lead from one host to another."""
        hosts = np.array([place.host for place in self.places])
        return np.asarray(hosts[:, None] != hosts[None, :])


def links_of(passes: list[Timed]) -> list[Link]:
    """Every link, from the transfers of all passes together."""
    ranks = len(passes[0].round_trips_s)
    joined = [
        np.concatenate([getattr(one, name) for one in passes], axis=2)
        for name in ("round_trips_s", "sizes_bytes", "times_s")
    ]
    return [
        _link(rank, to, *(part[rank, to] for part in joined))
        for rank in range(ranks)
        for to in range(ranks)
        if rank != to
    ]


def _link(rank: int, to: int, round_trips_s: Array, sizes: Array, times_s: Array) -> Link:
    return Link(
        rank=rank, to=to, **asdict(latency(round_trips_s)), **asdict(bandwidth(sizes, times_s))
    )


def costs_of(one: Timed) -> tuple[Array, Array]:
    """(latencies, seconds a byte) of one pass, shape (ranks, ranks); 1 on the diagonal."""
    links = links_of([one])
    ranks = len(one.round_trips_s)
    alphas, costs = np.ones((2, ranks, ranks))
    for link in links:
        alphas[link.rank, link.to] = link.alpha_s
        costs[link.rank, link.to] = max(1 / link.bytes_per_s, 1e-15)
    return alphas, costs


# ---------------------------------------------------------------------------------- as JSON


def part(measured: Measurement, record: Mapping[str, Any]) -> Measurement:
    """``measured`` and what ``record`` (one of those below) adds to it."""
    match record:
        case {"places": places}:
            return replace(measured, places=tuple(Place(**one) for one in places))
        case {"links": links, "alphas_s": alphas_s, "byte_costs_s": costs_s}:
            return replace(
                measured, links=tuple(Link(**one) for one in links),
                alphas_s=np.array(alphas_s), byte_costs_s=np.array(costs_s),
            )  # fmt: skip
        case {"timing": timing}:
            return replace(measured, timings=(*measured.timings, Timing(**timing)))
        case {"complete": complete}:
            return replace(measured, complete=complete)
    return measured


def links_record(passes: list[Timed]) -> dict[str, Any]:
    """All links so far."""
    alphas, costs = zip(*(costs_of(one) for one in passes), strict=True)
    return {
        "links": [asdict(one) for one in links_of(passes)],
        "alphas_s": np.array(alphas).tolist(),
        "byte_costs_s": np.array(costs).tolist(),
    }


def places_record(places: list[Place]) -> dict[str, Any]:
    """Where the ranks are."""
    return {"places": [asdict(one) for one in places]}


def timing_record(timing: Timing) -> dict[str, Any]:
    """One cell of the sweep."""
    return {"timing": asdict(timing)}
