"""How large the norm of a gradient may be: a number, or one that follows the norms seen so far.

A constant fits one model at one stage of its training; twice the running mean of the norms cuts off
the few gradients that are far out, of any model, and follows when norms shrink or grow. Pure
arithmetic: who clips, and what, is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

RELATIVE = 2.0
"""A gradient may be so many times as long as those before it were on average."""
MEMORY = 0.99
"""Of the running mean: it reaches back about 100 gradients."""
FIRST = 5
"""After so many norms there is a mean to compare with."""


class NormLimit(Protocol):
    """``now``: the largest norm allowed, None for any. ``state``: what :func:`norm_limit` goes on from."""

    @property
    def now(self) -> float | None: ...

    @property
    def state(self) -> list[float] | None: ...

    def feed(self, norm: float) -> None:
        """A gradient that had ``norm``, before clipping, was applied."""


class FixedLimit:
    """The user's ``clip_norm``, or none."""

    state = None

    def __init__(self, norm: float | None) -> None:
        self.now = norm

    def feed(self, norm: float) -> None:
        return


class RelativeLimit:
    """RELATIVE times the running mean of clipped norms, and never above ``fixed``.

    The mean is an exponential one without the bias towards zero of its beginning (as in Adam):
    ``total`` / (1 - MEMORY ** ``count``).
    """

    def __init__(self, fixed: float | None, *, total: float = 0.0, count: int = 0) -> None:
        self._fixed = fixed
        self._total = total
        self._count = count

    @property
    def now(self) -> float | None:
        if self._count < FIRST or self._total == 0:
            return self._fixed
        relative = RELATIVE * self._total / (1 - MEMORY**self._count)
        return relative if self._fixed is None else min(relative, self._fixed)

    @property
    def state(self) -> list[float]:
        return [self._total, float(self._count)]

    def feed(self, norm: float) -> None:
        if not math.isfinite(norm):
            return
        limit = self.now
        clipped = norm if limit is None else min(norm, limit)
        self._total = MEMORY * self._total + (1 - MEMORY) * clipped
        self._count += 1


def norm_limit(fixed: float | None, state: Sequence[float] | None) -> NormLimit:
    """A limit that is relative if ``state`` is given (:data:`NEW`, or an earlier one's)."""
    if state is None:
        return FixedLimit(fixed)
    total, count = state
    return RelativeLimit(fixed, total=total, count=int(count))


NEW = (0.0, 0.0)
"""The state of a relative limit that has seen nothing."""
