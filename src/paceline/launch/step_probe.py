"""A short real run of a script, ended as soon as it has recorded enough steps."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import PacelineError
from paceline.runs import Run, rank_files, read_run

ENOUGH = 60
"""Windows of each rank: quartiles of 60 are within a few per cent."""
LOOK_S = 0.2
ENDING_S = 30.0
LAST_WORDS = 1500


def probe(script: Path, args: Sequence[str], workers: int, out: Path) -> Run:
    """Run ``script`` under sync on ``workers`` processes, recording in ``out``, until each has done
    :data:`ENOUGH` windows or the script ends.

    Raises PacelineError with its last words if it failed.
    """
    words = [
        "run",
        "-n",
        str(workers),
        "--strategy",
        "sync",
        "--quiet",
        "--out",
        str(out),
        str(script),
    ]
    log = out.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline.cli", *words, *args], stdout=output, stderr=output
        )
        enough = _wait(process, workers, out)
    if not enough and process.returncode != 0:
        last = log.read_text(errors="replace")[-LAST_WORDS:].strip()
        raise PacelineError(f"{script}: the run that was to show its steps failed:\n{last}")
    return read_run(out)


def _wait(process: subprocess.Popen[bytes], workers: int, out: Path) -> bool:
    """Whether there is enough; the run has ended then."""
    try:
        while process.poll() is None and not _enough(workers, out):
            time.sleep(LOOK_S)
        return process.poll() is None
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(ENDING_S)


def _enough(workers: int, out: Path) -> bool:
    counts = [path.read_bytes().count(b'["step"') for _, path in rank_files(out)]
    return len(counts) == workers and min(counts) >= ENOUGH
