"""Workers of a run as threads of one process: real planes, a real server, sums over a board.

``paceline.Worker`` belongs to a process (exit hooks, the launcher's environment), so a rank here is
its parts: what :class:`paceline.Worker` does with them, in as few lines. gloo's group belongs to a
process too; :class:`Board` stands in for it.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.gradients.precision.mode import SIXTEEN_BIT
from paceline.launch.context import Launch
from paceline.server.app import Server
from paceline.transport.channel import ChannelClosedError, connect
from paceline.worker import collective_plane
from paceline.worker.assembly import assemble
from paceline.worker.loop import Loop
from paceline.worker.options import Runtime, options_from
from paceline.worker.planning import Demand
from paceline.worker.results import StepResult

WAIT_S = 30.0
DEFAULTS: dict[str, Any] = {
    "strategy": "sync", "accumulate": 1, "global_batch": None, "precision": "fp32",
    "clip_norm": None, "compress": None, "batch_norm": None, "recipe": "plain", "health": False,
}  # fmt: skip


class Board:
    """Where the ranks of one run leave what is to be added up, collective by collective."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._entries: dict[int, dict[int, torch.Tensor]] = {}
        self._changed = threading.Condition()

    def put(self, number: int, rank: int, tensor: torch.Tensor) -> None:
        with self._changed:
            self._entries.setdefault(number, {})[rank] = tensor.clone()
            self._changed.notify_all()

    def take(self, number: int) -> list[torch.Tensor]:
        """Every rank's tensor of collective ``number``, in rank order."""
        with self._changed:
            complete = lambda: len(self._entries.get(number, ())) == self._world_size  # noqa: E731
            assert self._changed.wait_for(complete, WAIT_S), "a rank did not enter a collective"
            return [self._entries[number][rank] for rank in range(self._world_size)]


class Gathering:
    """Every rank's tensor of collective ``number``, once waited for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.parts: list[torch.Tensor] = []


class BoardGroup:
    """One rank's end of a board: what :class:`paceline.transport.collective.Group` offers."""

    device = torch.device("cpu")

    def __init__(self, board: Board, rank: int) -> None:
        self._board, self._rank, self._number = board, rank, 0

    def start_sum(self, tensor: torch.Tensor, on_done: Callable[[], None] | None = None) -> Any:
        self._number += 1
        self._board.put(self._number, self._rank, tensor)
        return self._number, tensor

    def start_gather(self, tensor: torch.Tensor) -> Gathering:
        self._number += 1
        self._board.put(self._number, self._rank, tensor)
        return Gathering(self._number)

    def finish(self, work: Any) -> None:
        if isinstance(work, Gathering):
            work.parts = self._board.take(work.number)
            return
        number, tensor = work
        first, *others = self._board.take(number)
        tensor.copy_(first)
        for other in others:
            tensor.add_(other)

    def broadcast(self, tensor: torch.Tensor) -> None:
        self._number += 1
        self._board.put(self._number, self._rank, tensor)
        tensor.copy_(self._board.take(self._number)[0])

    def close(self, *, abandon: bool) -> None:
        pass


class Rank:
    """One worker: ``model``, ``optimizer`` and the loop around its plane."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, launch: Launch, **keywords: Any
    ) -> None:
        options = options_from({**DEFAULTS, "runtime": Runtime(), **keywords}, {})
        self.model, self.optimizer, self.rank = model, optimizer, launch.rank
        self.parts, self._session = assemble(model, optimizer, options, launch)
        self._loop = Loop(self.parts)

    def batches(self, loader: Any, *, split: bool = True) -> Iterator[Any]:
        return self._loop.run(Demand(loader=loader, steps=None, split=split))

    def settle(self) -> None:
        """A pass that was left early ends with the others'."""
        self._loop.settle()

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        with self.parts.precision.mode.context("cpu"):
            output: torch.Tensor = self.model(inputs)
        return output.float() if output.dtype in SIXTEEN_BIT else output

    def step(self, loss: torch.Tensor) -> StepResult:
        return self._loop.step(loss, None)

    def close(self) -> None:
        self._loop.settle()
        self.parts.guards.remove()
        self.parts.outside.remove()
        self.parts.plane.close("finished")
        self.parts.journal.close(reason="finished", version=0, peak_bytes=0, digest="")


def run_ranks(
    world_size: int, train: Callable[[Launch], Any], monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """What ``train`` gives on every rank; it makes a :class:`Rank` of its launch and closes it."""
    board = Board(world_size)
    monkeypatch.setattr(
        collective_plane, "join", lambda session, device: BoardGroup(board, session.rank)
    )
    alone = world_size == 1
    with nullcontext("") if alone else _server() as address, ThreadPoolExecutor(world_size) as pool:
        launches = [
            Launch(rank=rank, world_size=world_size, server=address) for rank in range(world_size)
        ]
        return list(pool.map(train, launches, timeout=WAIT_S))


@contextmanager
def _server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        address = str(Path(name) / "server")
        server = Server(address=address, out=None, linger_s=WAIT_S, clock_s=time.monotonic)
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield address
        finally:
            server.loop.stop()
            with suppress(ChannelClosedError):  # it had ended with its last worker
                connect(address).close()  # it looks up at once
            thread.join(WAIT_S)
            assert not thread.is_alive()
