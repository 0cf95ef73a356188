"""How much a push counts: divisors, the share of a lone push, and the unit of a window's losses.

Weights are samples or tokens. The worker multiplies each loss by weight / unit before backward;
the update divides the sum of gradients by :func:`divisor`, which makes it the weighted mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum

_EXPONENT = 1074  # every finite float is a whole multiple of 2**-1074
_ONE = 1 << _EXPONENT


def divisor(weights: Iterable[float], unit: float) -> float:
    """By what to divide the sum of gradients whose losses were multiplied by weight / ``unit``."""
    return fsum(weights) / unit


def window_unit(agreed: float | None, first: float) -> float:
    """The unit of one window's losses: the one all ranks agreed on, else its first weight.

    A push that stands alone needs no agreement, and with its first weight as unit a window of one
    micro-batch needs no factor at all. A first micro-batch without weight has unit 1.
    """
    if agreed is not None:
        return agreed
    return first if first > 0 else 1.0


class Weights:
    """The latest window weight of every worker, and their sum.

    One that has not pushed counts with its nominal weight, and before its first Request with the
    nominal weight heard last. The sum is exact and rounded once (as ``math.fsum``), so it does
    not depend on the order of events and is the worker's own weight when it is alone.
    """

    __slots__ = ("_exact", "_latest", "_nominal", "_pushed", "_silent", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self._exact = 0
        self._nominal = 0.0
        self._latest: dict[int, float] = {}
        self._pushed: set[int] = set()
        self._silent: set[int] = set()

    def join(self, rank: int) -> None:
        """A worker of which nothing is known yet."""
        self._pushed.discard(rank)
        self._silent.add(rank)
        self._set(rank, self._nominal)

    def expect(self, rank: int, nominal: float) -> None:
        """A worker says what its whole windows weigh."""
        self._silent.discard(rank)
        if rank not in self._pushed:
            self._set(rank, nominal)
        if nominal != self._nominal:
            self._nominal = nominal
            for other in self._silent:
                self._set(other, nominal)

    def push(self, rank: int, weight: float) -> None:
        """A worker pushed a window of ``weight``."""
        self._pushed.add(rank)
        if weight != self._latest[rank]:
            self._set(rank, weight)

    def forget(self, rank: int) -> None:
        """A worker died or departed. (A finished one stays in the sum.)"""
        self._set(rank, 0.0)
        del self._latest[rank]
        self._silent.discard(rank)

    def _set(self, rank: int, weight: float) -> None:
        self._exact += _fixed(weight) - _fixed(self._latest.get(rank, 0.0))
        self._latest[rank] = weight
        self.total = self._exact / _ONE


def _fixed(weight: float) -> int:
    numerator, denominator = weight.as_integer_ratio()
    return numerator << (_EXPONENT + 1 - denominator.bit_length())
