"""How long this thread was ready to run without being given a processor: Linux's own account.

``/proc/thread-self/schedstat`` has three numbers, the second of which is the nanoseconds spent on a
run queue. Reading it takes about 1.3 microseconds, so it is read once a window, and at every change of
phase only for a while after it had something to say. Where there is no such file nothing is measured.
"""

from __future__ import annotations

import os
from pathlib import Path

NOTABLE_S = 1e-3
"""Waiting less than that in a window is not worth a record."""
ATTENTIVE_WINDOWS = 50
"""So long each phase is looked at after a notable wait."""
_FILE = Path("/proc/thread-self/schedstat")
_LONGEST_LINE = 80
_PLACES = ("between", "data", "forward", "backward", "exchange", "somewhere")
_OF_PHASE = {"data": "data", "forward": "forward", "backward": "backward", "exchange": "exchange"}


class ProcessorQueue:
    """The account of the thread that makes this, window by window; ``path`` is for tests.

    ``attentive``: whether to be told of the ends of phases (:meth:`leave`).
    """

    def __init__(self, path: Path = _FILE) -> None:
        self._file: int | None = None
        self._before_ns = 0
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._before_ns = self._waited_ns()
        except (OSError, ValueError, IndexError):  # no such file, or nothing in it
            self.close()
        self._sums_s = dict.fromkeys(_PLACES, 0.0)
        self._attention = 0

    @property
    def kept(self) -> bool:
        """Whether there is an account."""
        return self._file is not None

    @property
    def attentive(self) -> bool:
        """Whether each phase counts at the moment."""
        return self._attention > 0

    def leave(self, phase: str) -> None:
        """The thread's ``phase`` ends: what it waited since the last call was in it."""
        self._sums_s[_OF_PHASE.get(phase, "between")] += self._lap_s()

    def take(self) -> dict[str, float] | None:
        """The waits of the window that ends now, by field of its record; None if they are not notable."""
        lap_s = self._lap_s()
        if not self._attention:
            return self._attend(lap_s)
        self._sums_s["exchange"] += lap_s
        sums_s, self._sums_s = self._sums_s, dict.fromkeys(_PLACES, 0.0)
        notable = sum(sums_s.values()) >= NOTABLE_S
        self._attention = ATTENTIVE_WINDOWS if notable else self._attention - 1
        return {f"{name}_s": wait_s for name, wait_s in sums_s.items()} if notable else None

    def _attend(self, somewhere_s: float) -> dict[str, float] | None:
        """The end of a window in which nobody looked; if it waited, the next ones are looked at."""
        if somewhere_s < NOTABLE_S:
            return None
        self._attention = ATTENTIVE_WINDOWS
        return {**{f"{name}_s": 0.0 for name in _PLACES}, "somewhere_s": somewhere_s}

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lap_s(self) -> float:
        now_ns = self._waited_ns()
        lap_s, self._before_ns = (now_ns - self._before_ns) * 1e-9, now_ns
        return lap_s

    def _waited_ns(self) -> int:
        if self._file is None:
            return 0
        return int(os.pread(self._file, _LONGEST_LINE, 0).split(b" ", 2)[1])
