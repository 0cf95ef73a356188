"""A directory that one command writes into: for one process at a time, and never over what is another's.

The claim is a lock on a file in it that ends with the process, however that ends (flock).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import UsageError, bad_value


@contextmanager
def claimed(directory: Path, command: str, *, sign: str = "") -> Iterator[None]:
    """Have ``directory``, made if need be, to oneself as the output of ``paceline command``.

    It may be new or empty, or hold what an earlier ``command`` left: its lock file, or something that
    matches the pattern ``sign``. Raises UsageError if it holds something else, or somebody is at work in it.
    """
    lock = directory / f"{command}.lock"
    ours = lock.exists() or (sign and any(directory.glob(sign)))
    if directory.is_dir() and not ours and any(directory.iterdir()):
        raise bad_value(
            "out", str(directory), f"a new or empty directory, or one of 'paceline {command}'",
            "What others wrote is never overwritten.",
        )  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    with lock.open("a+", encoding="utf-8") as file:
        _take(file.fileno(), directory, command)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _take(descriptor: int, directory: Path, command: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        raise UsageError(
            f"out={str(directory)!r}: another 'paceline {command}' (process {pid or 'unknown'}) is at work "
            "there. Wait for it, or give another --out."
        ) from None
