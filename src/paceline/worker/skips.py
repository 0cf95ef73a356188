"""Ends a run whose gradients stay not finite: a skipped window is an accident, twenty in a row are not.

Counts what it is told; knows no gradients and no ranks.
"""

from __future__ import annotations

from paceline.errors import NonFiniteError
from paceline.worker.plane import Outcome


class SkipLimit:
    """Raises NonFiniteError at the ``limit``-th window in a row that was skipped.

    Windows in which nothing was computed, and late ones, neither count nor end the row.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_a_row = 0
        self._first = ""

    def feed(self, outcome: Outcome) -> None:
        """What became of one more window."""
        if outcome.applied:
            self._in_a_row = 0
        elif outcome.skipped:
            self._count(outcome.reason)

    def _count(self, reason: str) -> None:
        if not self._in_a_row:
            self._first = reason
        self._in_a_row += 1
        if self._in_a_row >= self._limit:
            last = "" if reason == self._first else f"; the last: {reason}"
            raise NonFiniteError(
                f"{self._in_a_row} windows in a row were skipped. The first: {self._first}{last}. Look "
                "for a division by zero or a logarithm of zero in the loss, a learning rate that is "
                "too large, or types too narrow for its gradients (health=10 shows magnitudes). "
                "Runtime(max_skips=...) sets the limit."
            )
