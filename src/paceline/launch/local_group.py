"""Processes of this host that are a group for a while, and what their rank 0 says: a line of JSON each time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from paceline.errors import PacelineError

LAST_WORDS = 2000
ENDING_S = 10.0


def said_by_group(module: str, workers: int, plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run ``python -m module RANK WORLD_SIZE STORE PLAN`` as so many ranks; the records that rank 0 prints.

    All have ended when this has, however it ends. Raises PacelineError with the last words of one that failed.
    """
    with tempfile.TemporaryDirectory(prefix="paceline-") as name, contextlib.ExitStack() as stack:
        store = str(Path(name) / "store")
        members: list[subprocess.Popen[bytes]] = []
        logs = [
            stack.enter_context((Path(name) / f"{rank}").open("w+b")) for rank in range(workers)
        ]
        stack.callback(_end, members)
        for rank, log in enumerate(logs):
            words = [sys.executable, "-m", module, str(rank), str(workers), store, json.dumps(plan)]
            output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            members.append(
                subprocess.Popen(words, stdout=output, stderr=log, env=_environment(), start_new_session=True)
            )  # fmt: skip
        said = members[0].stdout
        assert said is not None
        for line in said:
            yield json.loads(line)
        _check(members, logs)


def _environment() -> dict[str, str]:
    """One thread each, and each member's own host by its loopback: the group is of this host."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def _check(members: list[subprocess.Popen[bytes]], logs: Sequence[IO[bytes]]) -> None:
    for rank, (member, log) in enumerate(zip(members, logs, strict=True)):
        if member.wait(ENDING_S) != 0:
            log.seek(0)
            words = log.read()[-LAST_WORDS:].decode(errors="replace").strip()
            raise PacelineError(f"rank {rank} of the group failed:\n{words}")


def _end(members: list[subprocess.Popen[bytes]]) -> None:
    for member in members:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(member.pid, signal.SIGKILL)
        member.wait()
        if member.stdout is not None:
            member.stdout.close()
