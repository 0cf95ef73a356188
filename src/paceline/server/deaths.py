"""Sees processes end: by pidfd where the kernel has it, else by looking each time it is asked to.

A process counts as ended once it cannot run any more, also if its parent has not collected it yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import psutil

from paceline.server.loop import Loop, Source


class Deaths:
    """Calls back once for each watched process that ended."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._sources: dict[int, Source] = {}
        self._polled: dict[int, Callable[[], None]] = {}

    def watch(self, pid: int, on_death: Callable[[], None]) -> None:
        """Call ``on_death`` from the loop once process ``pid`` has ended (or if it has already)."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._loop.call_at(self._loop.clock_s(), on_death)
        except (OSError, AttributeError):  # an old kernel, a sandbox that forbids it, macOS
            self._polled[pid] = on_death
        else:
            self._watch_fd(fd, on_death)

    def poll(self) -> None:
        """Look after the processes that have no pidfd."""
        for pid in [pid for pid in self._polled if has_ended(pid)]:
            self._polled.pop(pid)()

    def close(self) -> None:
        """Stop watching."""
        for fd in list(self._sources):
            self._forget(fd)

    def _watch_fd(self, fd: int, on_death: Callable[[], None]) -> None:
        def ended(_events: int) -> None:
            self._forget(fd)
            on_death()

        self._sources[fd] = self._loop.add(fd, ended, urgent=True)

    def _forget(self, fd: int) -> None:
        self._loop.remove(self._sources.pop(fd))
        os.close(fd)


def has_ended(pid: int) -> bool:
    """Whether the process is gone, or a zombie."""
    try:
        status: str = psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return True
    return status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
