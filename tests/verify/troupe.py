"""Worker processes that live through many scenes, each with a server of its own in a thread here."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from paceline.server.app import Server

ANSWER_WITHIN_S = 100.0  # torch alone takes 20 s to load on a machine with ten other jobs
SCRIPT = Path(__file__).with_name("script.py")

Answer = dict[str, Any]


class Troupe:
    """``size`` workers. Leaves nothing behind."""

    def __init__(self, size: int) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._workers = [
            subprocess.Popen(
                [sys.executable, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=None, text=True, env=environment,
            )
            for _ in range(size)
        ]  # fmt: skip
        self.notes: list[str] = []
        for worker in self._workers:
            _answer(worker, ANSWER_WITHIN_S)  # it has loaded what it needs

    def __enter__(self) -> Troupe:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.kill()
            worker.communicate()

    def play(self, scene: Answer, *, patience_s: float = ANSWER_WITHIN_S) -> list[Answer]:
        """What came of it on each rank; ``notes`` are then what the server recorded for people."""
        with tempfile.TemporaryDirectory(prefix="pl-") as name:
            address = str(Path(name) / "server")
            server = Server(address=address, out=Path(name), linger_s=60.0, clock_s=time.monotonic)
            thread = threading.Thread(target=server.serve)
            thread.start()
            try:
                return self._play({**scene, "server": address}, patience_s)
            finally:
                server.loop.call_at(0.0, server.loop.stop)
                thread.join()
                lines = (Path(name) / "server.jsonl").read_text().splitlines()
                self.notes = [line for line in lines if line.startswith('["note"')]

    def _play(self, scene: Answer, patience_s: float) -> list[Answer]:
        for rank, worker in enumerate(self._workers):
            told = {**scene, "own": rank, "world_size": len(self._workers)}
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(told) + "\n")
            worker.stdin.flush()
        return [_answer(worker, patience_s) for worker in self._workers]


def _answer(worker: subprocess.Popen[str], patience_s: float) -> Answer:
    assert worker.stdout is not None
    ready, _, _ = select.select([worker.stdout], [], [], patience_s)
    assert ready, "no answer"
    answer: Answer = json.loads(worker.stdout.readline())
    return answer
