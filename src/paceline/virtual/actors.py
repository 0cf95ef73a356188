"""Threads of which exactly one runs at a time: a worker plays its part until it has to wait.

Knows no clock and no server: who goes on next, and when, is the caller's business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Actor:
    """A thread that runs only between :meth:`resume` and its own next :meth:`pause`.

    ``play``: what it does. ``ended``: it has done it.
    """

    def __init__(self, name: str, play: Callable[[], None]) -> None:
        self.ended = False
        self._play = play
        self._may_go = threading.Lock()
        self._may_go.acquire()
        self._has_paused = threading.Lock()
        self._has_paused.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Let it go on; returns when it waits again, or has ended."""
        assert not self.ended
        self._may_go.release()
        self._has_paused.acquire()

    def pause(self) -> None:
        """Its own call: wait until it is resumed."""
        self._has_paused.release()
        self._may_go.acquire()

    def _run(self) -> None:
        self._may_go.acquire()
        try:
            self._play()
        finally:
            self.ended = True
            self._has_paused.release()
