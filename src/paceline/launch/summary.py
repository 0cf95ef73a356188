"""``run.json``: what was asked, on what it ran, how it ended. Written at the start and at the end.

The file is whole at any time (replaced, never overwritten in place); after a launcher that was
killed it says ``"ended": null``.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from paceline.launch.request import RunRequest, core_count

FORMAT_VERSION = 1
FILE_NAME = "run.json"
FIRST_SIGNAL_EXIT = 128
"""From here on an exit code says that a signal ended the run (Ctrl-C: 130)."""
_PACKAGES = ("paceline", "torch", "numpy")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankResult:
    """How one worker ended; ``fate`` and ``clock`` as in :mod:`paceline.launch.verdict`."""

    rank: int
    pid: int
    returncode: int
    fate: str
    clock: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NoticeResult:
    """A sentence of the server's about ``rank`` (-1: the run), heard at ``time_s`` (monotonic)."""

    time_s: float
    kind: str
    rank: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """How a run ended. ``exit_code``: 0 finished, 1 a worker failed, 3 stopped, 128+n signal n.

    ``out``: the run's directory. ``peak_pss_bytes``: largest sum over all workers, their children
    and the server, at one moment; 0 if the run was too short to be sampled. ``virtual_s``: what it
    took by the simulated clock of a virtual run that came to its end.
    """

    exit_code: int
    sentence: str
    out: Path
    wall_s: float
    threads: int
    ranks: Sequence[RankResult]
    notices: Sequence[NoticeResult]
    peak_pss_bytes: int
    peak_pss_bytes_by_process: Mapping[str, int] = field(default_factory=dict)
    virtual_s: float | None = None


def describe_start(request: RunRequest, *, started: str) -> dict[str, Any]:
    """What is known before the first process starts. ``started``: wall time, ISO 8601."""
    return {
        "format_version": FORMAT_VERSION,
        "request": asdict(request),
        "versions": {"python": platform.python_version(), **_package_versions()},
        "host": {"system": platform.platform(), "cores": core_count(), "python": sys.executable},
        "threads": request.threads_each(),
        "directory": os.getcwd(),
        "started": started,
        "ended": None,
    }


def describe_end(start: Mapping[str, Any], result: RunResult, *, ended: str) -> dict[str, Any]:
    """The whole summary of a run that has ended."""
    return {**start, **asdict(result), "ended": ended}


def write_summary(directory: Path, summary: Mapping[str, Any]) -> None:
    """Put ``summary`` into ``directory``'s ``run.json``."""
    whole = directory / (FILE_NAME + ".new")
    whole.write_text(summary_text(summary), encoding="utf-8")
    os.replace(whole, directory / FILE_NAME)


def summary_text(summary: Mapping[str, Any]) -> str:
    """The summary as JSON."""
    return json.dumps(summary, indent=2, default=str) + "\n"


def _package_versions() -> dict[str, str | None]:
    return {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
