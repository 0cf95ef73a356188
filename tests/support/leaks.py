"""Nothing of a run may be left: no process, no temporary file of ours, nothing in /dev/shm.

(Python's and torch's own directories, of processes that were killed, are theirs to leave.)
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import psutil

from support.runs import MARK, FinishedRun

GRACE_S = 1.0
_PID_IN_NAME = re.compile(r"^(?:torch|paceline)[_-](\d+)[_-]")


def assert_nothing_is_left(run: FinishedRun, *, within_s: float = GRACE_S) -> None:
    """Raises AssertionError that names what the run has left behind ``within_s`` after its end."""
    by_s = time.monotonic() + within_s
    while (left := _left(run)) and time.monotonic() < by_s:
        time.sleep(0.02)
    assert not left, f"left behind: {left}"


def processes_of(mark: str) -> list[psutil.Process]:
    """All living processes that a run has started, directly or not."""
    return [process for process in psutil.process_iter() if _carries(process, mark)]


def _left(run: FinishedRun) -> list[str]:
    processes = [f"process {p.pid} {_name(p)}" for p in processes_of(run.mark)]
    files = [f"file {path}" for path in sorted(run.temporary.glob("paceline*"))]
    shared = [f"shared memory {name}" for name in _orphaned_shared_memory()]
    return processes + files + shared


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and process.environ().get(MARK) == mark
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.Error:
        return "(ended)"


def _orphaned_shared_memory() -> list[str]:
    """Files in /dev/shm that carry the number of a process that is gone."""
    names = [path.name for path in Path("/dev/shm").glob("*")]
    found = [(name, _PID_IN_NAME.match(name)) for name in names]
    return [name for name, match in found if match and not psutil.pid_exists(int(match.group(1)))]
