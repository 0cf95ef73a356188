"""Threads of which exactly one runs at a time: a worker plays its part until it has to wait.

Knows no clock and no server: who goes on next, and when, is the caller's business.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

from paceline.errors import UsageError

LOOK_EVERY_S = 3.0
_IMPORTS = (
    "{} wants to import a module that another worker is in the midst of importing, and waits there for "
    "this one: a module trains while it is imported. In virtual time let the script call a function "
    "that trains."
)


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
        """Let it go on; returns when it waits again, or has ended.

        Raises UsageError if it never will, for it waits for what another actor holds.
        """
        assert not self.ended
        self._may_go.release()
        seen = None
        while not self._has_paused.acquire(timeout=LOOK_EVERY_S):
            waits_in = self._waits_for_an_import()
            if (
                waits_in is not None and waits_in is seen
            ):  # on its way through, it is there but once
                raise UsageError(_IMPORTS.format(self._thread.name))
            seen = waits_in

    def pause(self) -> None:
        """Its own call: wait until it is resumed."""
        self._has_paused.release()
        self._may_go.acquire()

    def _waits_for_an_import(self) -> FrameType | None:
        """The call in which it takes the lock of a module, if it is there now.

        While one actor goes on no other does: a module that another is importing is never there.
        """
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None or "importlib._bootstrap" not in frame.f_code.co_filename:
            return None
        return frame if frame.f_code.co_name == "acquire" else None

    def _run(self) -> None:
        self._may_go.acquire()
        try:
            self._play()
        finally:
            self.ended = True
            self._has_paused.release()
