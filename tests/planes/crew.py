"""A crew of worker processes that run cells side by side, each cell with a server of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from paceline.server.process import start_server

TESTS = Path(__file__).parents[1]
ANSWER_WITHIN_S = 40.0


class Crew:
    """``size`` worker processes. Leaves nothing behind."""

    def __init__(self, size: int) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
        command = [sys.executable, "-m", "planes.worker_script"]
        self.workers = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
                stderr=subprocess.PIPE,
            )
            for _ in range(size)
        ]  # fmt: skip

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self.workers:
            worker.kill()
            worker.communicate()

    def run(self, cell: dict[str, Any]) -> list[dict[str, Any] | None]:
        """Each worker's answer; None from one that ``acts`` in a way that cannot give any."""
        with tempfile.TemporaryDirectory() as directory:
            server = start_server(directory=Path(directory), out=None, parent_pid=os.getpid())
            try:
                return self._run({**cell, "server": server.address})
            finally:
                server.stop()

    def _run(self, cell: dict[str, Any]) -> list[dict[str, Any] | None]:
        size = len(self.workers)
        for rank, worker in enumerate(self.workers):
            assert worker.stdin is not None
            worker.stdin.write(json.dumps({**cell, "rank": rank, "world_size": size}) + "\n")
            worker.stdin.flush()
        return [
            None if _is_mute(cell, rank) else answer(worker)
            for rank, worker in enumerate(self.workers)
        ]


def _is_mute(cell: dict[str, Any], rank: int) -> bool:
    return cell.get("acts", {}).get(str(rank), "raise") != "raise"


def answer(worker: subprocess.Popen[str]) -> dict[str, Any] | None:
    """The worker's next line; None if its output ended."""
    assert worker.stdout is not None
    ready, _, _ = select.select([worker.stdout], [], [], ANSWER_WITHIN_S)
    assert ready, "no answer"
    line = worker.stdout.readline()
    return json.loads(line) if line else None
