"""Writes one process's trace: append-only, buffered, never the reason why training ends.

The caller flushes about once a second (``flush_if_due`` from a heartbeat or a loop) and at the end.
What a record looks like is :mod:`paceline.trace`'s business.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Literal

from paceline import trace

FLUSH_EVERY_S = 1.0


class Recorder:
    """Appends records to ``path``; with ``path=None`` it discards them. Safe to call from threads.

    ``role`` and ``rank`` go into the header. ``watch``: sees every record, once it is kept. If the file
    cannot be written (a full disk), it says so once on stderr and stops recording.
    """

    def __init__(
        self,
        path: Path | None,
        clock_s: Callable[[], float],
        *,
        role: Literal["worker", "server"] = "worker",
        rank: int = -1,
        watch: Callable[[trace.Record], None] | None = None,
    ) -> None:
        self._watch = watch
        self._path = path
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._flushed_s = clock_s()
        self._file: BinaryIO | None = None
        if path is not None:
            self._open(path)
            self.write(trace.header(role=role, rank=rank, time_s=self._flushed_s))
            self.flush()

    def write(self, record: trace.Record) -> None:
        """Keep ``record`` for the next flush."""
        if self._file is None:
            return
        line = trace.encode(record)
        with self._lock:
            self._lines.append(line)
        if self._watch is not None:
            self._watch(record)

    def flush_if_due(self) -> None:
        """Flush if the last one was a second ago or more."""
        if self._clock_s() - self._flushed_s >= FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Hand everything kept so far to the operating system."""
        with self._lock:
            self._flushed_s = self._clock_s()
            lines, self._lines = self._lines, []
            if self._file is not None and lines:
                self._append(b"".join(lines))

    def close(self) -> None:
        """Flush and close. Later records are discarded."""
        self.flush()
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open(self, path: Path) -> None:
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            self._give_up(error)

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            self._file.close()
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._file = None
        print(f"paceline: recording stopped: {self._path}: {error}", file=sys.stderr, flush=True)
