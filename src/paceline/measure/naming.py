"""Which link, port or host is the slow one? From a matrix of what links cost, measured several times. Pure.

A link is slow if it costs half as much again as the others (:data:`WORTH`), in every one of the passes, and by
more than chance allows for so many links. Slow links are then explained by as few culprits as possible: a
rank whose links are slow both ways (its port, or its host), in one direction, else single links. Where
no link can pass for healthy there is nothing to compare with, and nobody is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist
from typing import Literal

import numpy as np

from paceline.measure.wire import Array

Kind = Literal["port", "out", "in", "link"]

WORTH = 1.5
"""A link that costs less than half as much again is not worth anyone's way to the rack."""
NEARLY_ALL = 0.9
"""So many of a rank's links must be slow for it to be the rank: one of ten may be measured wrongly."""
CHANCE = 1e-3
"""The probability that a clean matrix has a slow link by the noise between its passes alone."""
HEALTHY = 1 / 3
"""At least so many links must be alike: of four ranks with one bad port half of the links are."""
TOO_NOISY = 4.0
"""Above this factor of noise 'nothing is slow' says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Culprit:
    """``kind``: "port" (all that ``rank`` sends and receives), "out" or "in" (one of them), or "link" (what it
    sends to ``to``). ``factor``: its cost over the other links' (medians)."""

    kind: Kind
    rank: int
    factor: float
    to: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Naming:
    """``healthy``: the median cost of links that are not slow. ``doubt``: why nobody is named, though
    something may be wrong; "" if there is none. ``least_factor``: what would have been seen."""

    culprits: tuple[Culprit, ...]
    healthy: float
    least_factor: float
    doubt: str = ""


def name_slow(passes: Array, considered: Array | None = None) -> Naming:
    """Who is slow in ``passes``, shape (passes, ranks, ranks): the cost (seconds, or seconds a byte; > 0) of
    what row sends to column. ``considered``: which links are alike by design (True); by default all but
    the diagonal.
    """
    ranks = passes.shape[1]
    links = ~np.eye(ranks, dtype=bool)
    if considered is not None:
        links &= considered
    if links.sum() < 2:
        return _nobody("there are not two links of a kind to compare")
    logs = np.log(np.where(links, passes, 1.0))
    slow, healthy, threshold = _slow_links(logs, links)
    found = _Found(logs=np.median(logs, axis=0), links=links, slow=slow, healthy=healthy)
    least = exp(threshold)
    if (links & ~slow).sum() < HEALTHY * links.sum():
        return _nobody("most links differ from each other: none can pass for healthy", least)
    if not slow.any() and least > TOO_NOISY:
        return _nobody(
            "links, or measurements of one link, differ so much that only a factor of "
            f"{least:.3g} would show",
            least,
        )
    return Naming(culprits=tuple(_explain(found)), healthy=exp(healthy), least_factor=least)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """``logs``: of the costs, median over the passes. ``healthy``: the others' median."""

    logs: Array
    links: Array
    slow: Array
    healthy: float

    def factor(self, which: Array) -> float:
        return float(exp(np.median(self.logs[which]) - self.healthy))


def _nobody(doubt: str, least_factor: float = WORTH) -> Naming:
    return Naming(culprits=(), healthy=float("nan"), least_factor=least_factor, doubt=doubt)


def _slow_links(logs: Array, links: Array) -> tuple[Array, float, float]:
    """Which links are slow, the others' median, and the threshold (a logarithm) between them.

    The first guess of that median is that of the lower third: more than half may be slow.
    """
    cost = np.median(logs, axis=0)
    like = links & (cost <= np.quantile(cost[links], HEALTHY))
    for _ in range(4):
        healthy = float(np.median(cost[like]))
        threshold = max(log(WORTH), _by_chance(logs, links, like))
        drift = np.median(logs[:, like], axis=1) - healthy
        each = logs - drift[:, None, None] - healthy
        slow = links & (cost - healthy > threshold) & (each.min(axis=0) > log(WORTH))
        like = links & ~slow if not slow[links].all() else like
    return slow, healthy, threshold


def _by_chance(logs: Array, links: Array, like: Array) -> float:
    """How far above the others chance brings the highest of so many links: the noise between passes, or
    what links that are ``like`` each other differ for good, whichever is more."""
    passes, cost = len(logs), np.median(logs, axis=0)
    if passes < 2:
        return log(TOO_NOISY)
    noise = np.sqrt(logs.var(axis=0, ddof=1)[links].mean() / passes)
    lasting = np.median(np.abs(cost[like] - np.median(cost[like]))) / NormalDist().inv_cdf(0.75)
    quantile = _student(1 - CHANCE / int(links.sum()), int(links.sum()) * (passes - 1))
    return float(quantile * max(noise, lasting))


def _student(probability: float, freedom: int) -> float:
    """Student's t quantile from the normal one, to three terms (Fisher, Cornish 1960)."""
    z = NormalDist().inv_cdf(probability)
    second = (z**3 + z) / (4 * freedom)
    return z + second + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _explain(found: _Found) -> Iterator[Culprit]:
    """Culprits that account for all slow links: first whoever accounts for most."""
    left = found.slow.copy()
    accused = np.zeros(len(left), dtype=bool)
    while left.any():
        culprit, covered = max(
            _candidates(found, left, accused), key=lambda one: _worth(one[0], one[1], left)
        )
        yield culprit
        accused[culprit.rank] |= culprit.kind != "link"
        left &= ~covered


def _worth(culprit: Culprit, covered: Array, left: Array) -> tuple[int, bool, float]:
    return int((covered & left).sum()), culprit.kind == "port", culprit.factor


def _candidates(found: _Found, left: Array, accused: Array) -> Iterator[tuple[Culprit, Array]]:
    for rank in np.flatnonzero(~accused):
        yield from _of_rank(found, int(rank), accused)
    row, column = (int(place) for place in np.unravel_index(
        np.argmax(np.where(left, found.logs, -np.inf)), left.shape))  # fmt: skip
    only = np.zeros_like(left)
    only[row, column] = True
    yield Culprit(kind="link", rank=row, to=column, factor=found.factor(only)), only


def _of_rank(found: _Found, rank: int, accused: Array) -> Iterator[tuple[Culprit, Array]]:
    """The rank itself, if nearly all that it sends, receives, or both, is slow.

    Links to ranks that are accused already say nothing of this one; two others at least must.
    """
    out, into = np.zeros_like(found.links), np.zeros_like(found.links)
    out[rank], into[:, rank] = True, True
    fair = found.links & ~accused[None, :] & ~accused[:, None]
    shapes: tuple[tuple[Kind, Array], ...] = (("port", out | into), ("out", out), ("in", into))
    for kind, shape in shapes:
        judged = shape & fair
        halves = [judged & out, judged & into] if kind == "port" else [judged]
        if all(half.sum() >= 2 and found.slow[half].mean() >= NEARLY_ALL for half in halves):
            slow = shape & found.slow
            yield Culprit(kind=kind, rank=rank, factor=found.factor(slow & judged)), slow
