"""The scripts' end of the line to the benchmark: wait asleep for a command, do it, answer.

A line of JSON each way over a unix socket. ``{"do": "block", "steps": 5}`` calls
``deeds["block"](steps=5)``, whose dictionary is the answer. The line's end ends the script.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from harness.models import Task, fixed_loss

Deeds = Mapping[str, Callable[..., dict[str, Any]]]


def serve(address: str, rank: int, deeds: Deeds) -> None:
    """Carry out commands until the benchmark closes the line."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        with line.makefile("rwb") as file:
            answer = {"rank": rank, "pid": os.getpid()}
            while True:
                file.write(json.dumps(answer).encode() + b"\n")
                file.flush()
                command = json.loads(file.readline() or "null")
                if command is None:
                    return
                answer = {"rank": rank, **deeds[command.pop("do")](**command)}


class Block:
    """What a rank did in one block of steps: begins with its first batch."""

    def __init__(self) -> None:
        self._begin_s: float | None = None
        self.steps = 0

    def batch_is_here(self) -> None:
        if self._begin_s is None:
            self._begin_s = time.monotonic()

    def ended(self, **more: Any) -> dict[str, Any]:
        """The answer to ``block``; the time of this call is the block's end."""
        end_s = time.monotonic()
        begin_s = end_s if self._begin_s is None else self._begin_s
        return {"begin_s": begin_s, "end_s": end_s, "steps": self.steps, **more}


def snapshot(model: nn.Module, task: Task, rank: int, path: str) -> dict[str, Any]:
    """Rank 0 writes all parameters as one float32 vector; everyone says the loss."""
    if rank == 0:
        vectors = [parameter.detach().numpy().ravel() for parameter in model.parameters()]
        np.concatenate(vectors).tofile(Path(path))
    return {"loss": fixed_loss(task, model) if rank == 0 else None}
