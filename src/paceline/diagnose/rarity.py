"""Can it be chance that a worker takes longer? Three ways to count, for whoever accuses one.

Where workers go in rounds: how often it was the last of the costly ones, against Binomial(K, 1/N).
Costly is a round that loses at least half of what the costliest do on average, which make up half (or, a
second test, four fifths) of all that is lost: a straggler that is always late and one that hiccups now and
then both show, and which rounds these are does not depend on who was last. Elsewhere: of the longest
windows of all workers, chosen likewise, how many are its own, against drawing lots (hypergeometric). And
of one that is always slow, behind hiccups that hit everybody: how many of its windows are above the
middle (a sign test; elsewhere Mood's median test). All corrected for the number of workers looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline.diagnose.chance import binomial_tail, hypergeometric_tail
from paceline.diagnose.measured import Floats, Measured
from paceline.diagnose.pace import others_s

Wholes = npt.NDArray[np.int64]
COSTLIEST = (0.5, 0.8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rarity:
    """``seen`` of ``of`` windows, where ``by_chance`` would be; ``chance``: the probability of that or more.

    ``counted``: as what: the last of a round, the longest of all, or above the middle.
    """

    counted: Literal["last", "longest", "above"]
    seen: int
    of: int
    by_chance: float
    chance: float


def among_the_costly(found: Measured, times_s: Floats, column: int, many: int) -> Rarity:
    """How often the worker was among the ``many`` last, or its windows among the longest.

    Both shares' windows may be the same ones (the one set contains the other): then it is one test.
    """
    if found.together:
        tests = {_late_in_the_round(times_s, column, share, many) for share in COSTLIEST}
    else:
        tests = {_among_the_longest(times_s, column, share) for share in COSTLIEST}
    seen, of, chance = min(tests, key=lambda one: one[2])
    return Rarity(
        counted="last" if found.together else "longest", seen=seen, of=of,
        by_chance=of * (many if found.together else 1) / found.workers,
        chance=min(1.0, len(tests) * found.workers * chance),
    )  # fmt: skip


def above_the_middle(found: Measured, _: Floats, column: int, _many: int) -> Rarity:
    """How often the worker took longer than half of the others did; how much longer does not count."""
    times_s, windows = found.own_s, found.windows
    if found.together:
        seen = int((times_s > others_s(times_s, together=True))[:, column].sum())
        chance = binomial_tail(seen, windows, 0.5)
    else:
        above = times_s > np.median(times_s)
        seen = int(above[:, column].sum())
        chance = hypergeometric_tail(seen, int(above.sum()), windows, times_s.size)
    return Rarity(
        counted="above", seen=seen, of=windows, by_chance=windows / 2,
        chance=min(1.0, found.workers * chance),
    )  # fmt: skip


def _late_in_the_round(
    times_s: Floats, column: int, share: float, many: int
) -> tuple[int, int, float]:
    """In how many of the costly rounds it was among the ``many`` last, and late: by half of what the
    last one was. (Where many are equal, somebody is second to last all the same.)"""
    workers = times_s.shape[1]
    usual_s = np.median(times_s, axis=1)
    loss_s = times_s.max(axis=1) - usual_s
    costly = _notable(loss_s, share)
    places = times_s[costly].argsort(axis=1, kind="stable")[:, workers - many :]
    late = times_s[costly, column] - usual_s[costly] >= 0.5 * loss_s[costly]
    last = int(((places == column).any(axis=1) & late).sum())
    return last, len(costly), binomial_tail(last, len(costly), many / workers)


def _among_the_longest(times_s: Floats, column: int, share: float) -> tuple[int, int, float]:
    loss_s = np.maximum(times_s - np.median(times_s), 0.0).ravel()
    owner = np.tile(np.arange(times_s.shape[1]), len(times_s))
    longest = _notable(loss_s, share)
    seen = int((owner[longest] == column).sum())
    return seen, len(longest), hypergeometric_tail(seen, len(longest), len(times_s), times_s.size)


def _notable(loss_s: Floats, share: float) -> Wholes:
    """Places of the entries of at least half of what the costliest, which make up ``share``, are on average."""
    heavy_s = loss_s[costliest(loss_s, share)]
    return np.flatnonzero(loss_s >= 0.5 * float(heavy_s.mean()))


def costliest(loss_s: Floats, share: float) -> Wholes:
    """Places of the fewest entries that make up ``share`` of the sum; at least one."""
    order = np.argsort(-loss_s, kind="stable")
    reached = np.cumsum(loss_s[order])
    count = int(np.searchsorted(reached, share * reached[-1])) + 1
    return order[:count]
