"""Could it be chance? Binomial and hypergeometric tails, and whether flags come in runs. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import exp, lgamma, log


def binomial_tail(successes: int, trials: int, chance: float) -> float:
    """P(X >= successes) for X ~ Binomial(trials, chance)."""
    if successes <= 0:
        return 1.0
    if not 0.0 < chance < 1.0:
        return float(chance >= 1.0)
    return min(1.0, sum(_point(k, trials, chance) for k in range(successes, trials + 1)))


def _point(k: int, n: int, p: float) -> float:
    return exp(_log_comb(n, k) + k * log(p) + (n - k) * log(1.0 - p))


def hypergeometric_tail(seen: int, drawn: int, own: int, total: int) -> float:
    """P(X >= seen) of ``drawn`` from ``total`` without replacement, of which ``own`` are one's own."""
    ways = _log_comb(total, drawn)
    first, last = max(seen, drawn - (total - own)), min(own, drawn)
    logs = (_log_comb(own, k) + _log_comb(total - own, drawn - k) for k in range(first, last + 1))
    return min(1.0, sum(exp(one - ways) for one in logs))


def _log_comb(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def longest_run(flags: Sequence[bool]) -> tuple[int, int]:
    """(start, length) of the longest stretch of set flags; (0, 0) if none is set."""
    best, place = (0, 0), 0
    for flag, group in groupby(flags):
        length = len(list(group))
        if flag and length > best[1]:
            best = (place, length)
        place += length
    return best


def clustering(flags: Sequence[bool]) -> float:
    """How many runs there are, over how many there would be in random order (Wald, Wolfowitz 1940).

    1: as chance would have it; near 0: what is set comes in one piece.
    """
    total, ones = len(flags), sum(flags)
    zeros = total - ones
    if ones == 0 or zeros == 0:
        return 1.0
    runs = sum(1 for _ in groupby(flags))
    return runs / (2.0 * ones * zeros / total + 1.0)
