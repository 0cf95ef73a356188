"""Ctrl-C and its kin as something a loop can wait for, instead of an exception anywhere."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CaughtSignals:
    """While entered, SIGINT, SIGTERM and SIGHUP are noted and make :meth:`fileno` readable.

    A signal that was ignored before (``nohup``) stays ignored. Outside the main thread, where
    Python cannot set handlers, nothing is caught.
    """

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self._previous: dict[signal.Signals, object] = {}

    def fileno(self) -> int:
        """A descriptor that becomes readable with the first signal."""
        return self._read

    def __enter__(self) -> CaughtSignals:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        if threading.current_thread() is threading.main_thread():
            for number in _CAUGHT:
                self._catch(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._read)
        os.close(self._write)

    def _catch(self, number: signal.Signals) -> None:
        if signal.getsignal(number) is not signal.SIG_IGN:
            self._previous[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = signal.Signals(number)
            os.write(self._write, b"!")
