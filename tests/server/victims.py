"""Workers in processes of their own, to be killed or stopped at a chosen point."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def victim(work: Callable[[], None]) -> Iterator[int]:
    """Fork a process that does ``work()``, then waits to be killed; its pid, once it is there.

    The child inherits this process's sockets, as DataLoader workers do: their end proves nothing.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work_and_wait(work, writing)
    os.close(writing)
    try:
        assert os.read(reading, 1) == b"k", "the victim failed before its point"
        yield pid
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def kill(pid: int) -> None:
    """``kill -9``; the process stays a zombie until its test collects it."""
    os.kill(pid, signal.SIGKILL)


def _work_and_wait(work: Callable[[], None], writing: int) -> None:
    try:
        work()
        os.write(writing, b"k")
        signal.pause()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
