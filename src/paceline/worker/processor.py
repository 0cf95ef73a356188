"""How long this thread was ready to run without being given a processor: Linux's own account.

``/proc/thread-self/schedstat`` has three numbers, the second of which is the nanoseconds spent on a
run queue. Reading it takes about 1.3 microseconds. Where there is no such file nothing is measured.
"""

from __future__ import annotations

import os
from pathlib import Path

_FILE = Path("/proc/thread-self/schedstat")
_LONGEST_LINE = 80


class ProcessorQueue:
    """The account of the thread that makes this; ``path`` is for tests."""

    def __init__(self, path: Path = _FILE) -> None:
        try:
            self._file: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None
        self._before_ns = self._waited_ns()

    @property
    def kept(self) -> bool:
        """Whether there is an account."""
        return self._file is not None

    def lap_s(self) -> float:
        """Seconds waited for a processor since the last call."""
        now_ns = self._waited_ns()
        lap_s, self._before_ns = (now_ns - self._before_ns) * 1e-9, now_ns
        return lap_s

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _waited_ns(self) -> int:
        if self._file is None:
            return 0
        return int(os.pread(self._file, _LONGEST_LINE, 0).split(None, 2)[1])
