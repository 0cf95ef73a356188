"""Learning rates that rise to the user's over the first updates: a factor on them at each update.

A factor, so that no scheduler undoes it, and of the progress of all workers, so that it ends at the
same point under every strategy. Pure arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmUp:
    """Over ``updates`` updates of ``workers`` windows each; 0 updates are none.

    The rate of the u-th update (u = 1, 2, ...) is u / updates of the user's, as in a plain loop.
    """

    updates: int
    workers: int

    def factor(self, progress: int, window: int) -> float:
        """For the update after ``progress`` loader batches; a window has ``window`` of them."""
        number = 1 + progress / (self.workers * window)
        return min(1.0, number / self.updates) if self.updates else 1.0
