"""``paceline run --virtual``: starts the one process of a virtual run, and reads what it left behind.

The process itself is :mod:`paceline.virtual`; to the supervisor it is a worker like any other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from paceline.launch.output import Console, StreamName
from paceline.launch.summary import NoticeResult
from paceline.launch.verdict import WorkerEnd
from paceline.transport.messages import Notice

STATUS_MARK = "\x1e"
"""Begins a line that is the status, not output."""
FILE_NAME = "virtual.json"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a virtual run. ``time_s``: simulated. ``codes``: each worker's exit code.

    ``notices``: the server's, each with its simulated time in seconds.
    """

    time_s: float
    codes: list[int]
    notices: list[tuple[float, Notice]]


class Unprefixed:
    """A console for the output of that process, whose lines carry their ranks already."""

    def __init__(self, console: Console) -> None:
        self.say = console.say
        self.status = console.status
        self._console = console

    def worker_line(self, stream: StreamName, rank: int, text: str) -> None:
        """One line of the process's output, or its status."""
        if text.startswith(STATUS_MARK):
            self._console.status(text.removeprefix(STATUS_MARK))
        else:
            self._console.line(stream, text)


def command(launch_text: str, threads: int, script: Sequence[str]) -> list[str]:
    """The command line of the process. ``script``: its path and arguments."""
    return [
        sys.executable, "-m", "paceline.virtual", "--launch", launch_text, str(threads), *script,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    """What else the process is given: threads that take turns need no memory pools of their own."""
    return {"MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "1")}


def ends_of(process: WorkerEnd, workers: int, outcome: Outcome | None) -> list[WorkerEnd]:
    """How each worker ended, if ``process`` ended so."""
    codes = [process.returncode] * workers if outcome is None else outcome.codes
    return [replace(process, rank=rank, returncode=code) for rank, code in enumerate(codes)]


def notices_of(outcome: Outcome | None) -> list[NoticeResult]:
    """What the server said, by simulated time."""
    said = [] if outcome is None else outcome.notices
    return [
        NoticeResult(time_s=time_s, kind=one.kind, rank=one.rank, text=one.text)
        for time_s, one in said
    ]


def write_outcome(out: Path | None, outcome: Outcome) -> None:
    """Leave ``outcome`` in the run's directory."""
    if out is not None:
        (out / FILE_NAME).write_bytes(msgspec.json.encode(outcome))


def read_outcome(out: Path) -> Outcome | None:
    """What the process left behind; None if it did not come to its end."""
    path = out / FILE_NAME
    if not path.exists():
        return None
    outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
    path.unlink()
    return outcome
