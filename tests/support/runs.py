"""Run a script on N workers, as a user would: ``paceline run`` in a process of its own.

    run = run_script(SCRIPT, ["--lr", "0.1"], workers=4, strategy="async")
    assert run.exit_code == 0, run.stderr

Everything a run may leave behind can be found by the mark in its processes' environment and in a
temporary directory of its own: see :mod:`support.leaks`.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MARK = "PACELINE_TEST_RUN"
_serial = itertools.count()


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """``stdout`` and ``stderr``: prefixed lines; ``out``: the run's directory; ``mark``: see above."""

    exit_code: int
    stdout: str
    stderr: str
    out: Path
    temporary: Path
    mark: str
    wall_s: float

    @property
    def summary(self) -> dict[str, Any]:
        """What ``run.json`` says."""
        text = (self.out / "run.json").read_text()
        summary: dict[str, Any] = json.loads(text)
        return summary

    def lines(self, rank: int) -> list[str]:
        """What ``rank`` printed to stdout, without the prefix."""
        prefix = f"[{rank}] "
        return [s.removeprefix(prefix) for s in self.stdout.splitlines() if s.startswith(prefix)]


class RunningRun:
    """A run under way: ``launcher`` is its process, ``out`` its directory."""

    def __init__(self, script: Path | str, args: Sequence[str], **options: Any) -> None:
        self.mark = f"{os.getpid()}-{next(_serial)}"
        root = Path(tempfile.mkdtemp(prefix="r", dir=_root().name))
        self.out, self.temporary = root / "run", root / "tmp"
        self.temporary.mkdir()
        self._started_s = time.monotonic()
        self.launcher = subprocess.Popen(
            _command(_as_file(script, root), args, out=self.out, **options),
            env={**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heed_ctrl_c,
        )

    def finish(self, timeout_s: float = 100.0) -> FinishedRun:
        """Wait for the end; past ``timeout_s`` end the run and fail with its output."""
        try:
            stdout, stderr = self.launcher.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.launcher.terminate()
            stdout, stderr = self.launcher.communicate(timeout=10)
            raise AssertionError(
                f"not finished after {timeout_s} s\n{stdout[-3000:]}\n{stderr[-3000:]}"
            ) from None
        return FinishedRun(
            exit_code=self.launcher.returncode,
            stdout=stdout,
            stderr=stderr,
            out=self.out,
            temporary=self.temporary,
            mark=self.mark,
            wall_s=time.monotonic() - self._started_s,
        )


def heed_ctrl_c() -> None:
    """A test run in the background of a shell would hand down that SIGINT is to be ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_script(
    script: Path | str, args: Sequence[str] = (), *, timeout_s: float = 100.0, **options: Any
) -> FinishedRun:
    """Run ``script`` (a path, or a script's text) to its end.

    ``options`` are those of the command line, with underscores: ``workers=4, strategy="ssp:3",
    accumulate=2, evict_after_s=3.0, emulate=path, seed=1, threads=1, lr_factor=0.5, quiet=True``.
    """
    return RunningRun(script, args, **options).finish(timeout_s)


def wait_for(path: Path, *, timeout_s: float = 60.0) -> str:
    """The text of a file that a worker writes (whole, by renaming) to say how far it is."""
    by_s = time.monotonic() + timeout_s
    while not path.exists():
        assert time.monotonic() < by_s, f"{path} did not appear within {timeout_s} s"
        time.sleep(0.01)
    return path.read_text()


def _command(script: Path, args: Sequence[str], *, out: Path, **options: Any) -> list[str]:
    options.setdefault("threads", 1)
    command = [sys.executable, "-m", "paceline.cli", "run", "--out", str(out)]
    for name, value in options.items():
        flag = "--" + name.removesuffix("_s").replace("_", "-")
        if value is True:
            command.append(flag)
        elif value is not None and value is not False:
            command += [flag, str(value)]
    return [*command, str(script), *args]


def _as_file(script: Path | str, root: Path) -> Path:
    if isinstance(script, Path):
        return script
    path = root / "script.py"
    path.write_text(script)
    return path


@cache
def _root() -> tempfile.TemporaryDirectory[str]:
    """A short path (sockets lie below), removed when the tests end."""
    return tempfile.TemporaryDirectory(prefix="pl")
