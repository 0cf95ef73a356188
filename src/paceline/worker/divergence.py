"""Notices, while training runs, that the loss diverges. Pure: losses in, one sentence out."""

from __future__ import annotations

import math

_SMOOTHING = 0.9
_GROWTH = 10.0
_PATIENCE_WINDOWS = 20


class DivergenceWatch:
    """Fed each window's loss; tells once when the loss is not finite, or far above its best for long.

    Far: the smoothed loss is over 10 times its smallest value and above where it started, for 20
    windows in a row.
    """

    def __init__(self) -> None:
        self._smooth: float | None = None
        self._first = 0.0
        self._best = math.inf
        self._windows_above = 0
        self._told = False

    def feed(self, loss: float) -> str:
        """What is wrong with the loss, the first time that something is; else ""."""
        if self._told:
            return ""
        problem = self._judge(loss)
        self._told = bool(problem)
        return problem

    def _judge(self, loss: float) -> str:
        if not math.isfinite(loss):
            return f"the loss became {loss}"
        if self._smooth is None:
            self._smooth = self._first = loss
        self._smooth = _SMOOTHING * self._smooth + (1 - _SMOOTHING) * loss
        self._best = min(self._best, self._smooth)
        above = 0 < _GROWTH * self._best < self._smooth and self._smooth > self._first
        self._windows_above = self._windows_above + 1 if above else 0
        if self._windows_above < _PATIENCE_WINDOWS:
            return ""
        return f"the loss has grown to {self._smooth:.4g}, its best was {self._best:.4g}"
