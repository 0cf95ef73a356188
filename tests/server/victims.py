"""Workers in processes of their own, to be killed or stopped at a chosen point."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def victim(
    work: Callable[[], None],
    afterwards: Callable[[], object] = signal.pause,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[int]:
    """Fork a process that does ``work()``; its pid, once that is done and it does ``afterwards()``.

    ``meanwhile()`` is done here while it works.

    The child inherits this process's sockets, as DataLoader workers do: their end proves nothing.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _live(work, afterwards, writing)
    os.close(writing)
    try:
        meanwhile()
        assert os.read(reading, 1) == b"k", "the victim failed before its point"
        yield pid
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def kill(pid: int) -> None:
    """``kill -9``; the process stays a zombie until its test collects it."""
    os.kill(pid, signal.SIGKILL)


def _live(work: Callable[[], None], afterwards: Callable[[], object], writing: int) -> None:
    try:
        work()
        os.write(writing, b"k")
        afterwards()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
