"""An emulated server's capacity: it is busy with one push for a while, and with one at a time.

A push that comes is taken up when those before it are through. Meanwhile the real server goes on with
everything else. Knows no policy and no payload.
"""

from __future__ import annotations

from collections.abc import Callable

CallAt = Callable[[float, Callable[[], None]], None]
"""Plans a call for a time, in seconds on the server's clock."""


class Capacity:
    """``serving_s``: how long one push keeps the emulated server busy."""

    def __init__(self, serving_s: float, *, clock_s: Callable[[], float], call_at: CallAt) -> None:
        self._serving_s = serving_s
        self._clock_s = clock_s
        self._call_at = call_at
        self._free_s = 0.0

    def queue(self, act: Callable[[], None]) -> None:
        """Call ``act`` when the server would be through with the push that has come now."""
        self._free_s = max(self._free_s, self._clock_s()) + self._serving_s
        self._call_at(self._free_s, act)
