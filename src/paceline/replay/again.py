"""Carries out a replay: the recorded command line on real workers, in the recorded order, judged.

replayed = replay(Path("runs/20260101-120000-train-async"), until=120)
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TextIO

from paceline.launch.run import run
from paceline.launch.summary import describe_start
from paceline.replay.recorded import Recorded, place_for, recorded, request_of
from paceline.replay.verdict import Replayed, judge


def replay(
    directory: Path,
    *,
    until: int | None = None,
    out: Path | None = None,
    quiet: bool = False,
    tell: Callable[[str], None],
    stdout: TextIO | None = None,
) -> Replayed:
    """Run the run recorded in ``directory`` again, up to version ``until`` or its end.

    ``tell``: gets sentences for people. ``stdout``: for the workers' output. Raises UsageError before
    anything is started.
    """
    before = recorded(directory)
    stop_at = before.until(until)
    request = request_of(before, out=place_for(directory, out), until=stop_at, quiet=quiet)
    changed_s = request.script.stat().st_mtime
    for sentence in _doubts(before, describe_start(request, started=""), changed_s):
        tell(sentence)
    return judge(before, run(request, stdout=stdout), stop_at)


def _doubts(before: Recorded, now: dict[str, object], changed_s: float) -> list[str]:
    """Why bits may differ, before they do. ``changed_s``: when the script was, since 1970."""
    doubts = []
    started = before.summary.get("started")
    if started and changed_s > datetime.fromisoformat(started).timestamp():
        doubts.append(
            f"{before.summary['request']['script']} was changed since the run was recorded"
        )
    for what in ("versions", "host"):
        then = before.summary.get(what, {})
        here = now[what]
        assert isinstance(here, dict)
        doubts += [
            f"recorded with {name} {then[name]}, replayed with {here[name]}: bits may differ"
            for name in ("torch", "numpy", "system")
            if name in then and then[name] != here[name]
        ]
    return doubts
