"""A server and shards in processes of their own, all of them threads of this one, over the loopback."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.server.app import Server
from paceline.server.far_shards import FarShards
from paceline.server.shard_server import ShardServer
from paceline.transport.addresses import Remote
from paceline.transport.keys import make_key, read_key
from paceline.transport.messages import PROTOCOL_VERSION, Hello
from paceline.transport.sockets import listen_on

ENDS_WITHIN_S = 20.0
torch.optim.SGD(
    [torch.zeros(1)], lr=1.0
)  # its first one imports for seconds, which no reply waits for


@dataclass(kw_only=True)
class Run:
    """``near``: where workers of the server's host connect; ``far``: others, who need ``key``."""

    near: str
    far: str
    port: int
    key: Path
    server: Server
    shards: list[ShardServer] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def ended(self) -> bool:
        """Whether server and shards have ended by themselves."""
        for thread in self.threads:
            thread.join(ENDS_WITHIN_S)
        return not any(thread.is_alive() for thread in self.threads)


def introduction() -> Hello:
    return Hello(
        protocol=PROTOCOL_VERSION, role="hub", rank=0, world_size=0, pid=os.getpid(), host="here",
        evict_after_s=0.0,
    )  # fmt: skip


@contextmanager
def running(shards: int) -> Iterator[Run]:
    """A run of so many shards. It must end by itself with the test's workers."""
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        run = _started(Path(name), shards)
        try:
            yield run
            assert run.ended(), "the server or a shard did not end with its last worker"
        finally:
            run.server.loop.stop()
            for shard in run.shards:
                shard.loop.stop()
            run.ended()


def _started(directory: Path, shards: int) -> Run:
    key = directory / "key"
    make_key(key)
    listener = listen_on(Remote(host="127.0.0.1", port=0))
    port = listener.getsockname()[1]
    far = None
    if shards > 1:
        far = FarShards(shards - 1, key=key, clock_s=time.monotonic, introduction=introduction())
    server = Server(
        address=str(directory / "server"), out=directory, linger_s=30.0, clock_s=time.monotonic,
        abroad=(listener, read_key(key)), far=far,
    )  # fmt: skip
    run = Run(
        near=str(directory / "server"), far=f"tcp://127.0.0.1:{port}", port=port, key=key,
        server=server,
    )  # fmt: skip
    _spin(run, server.serve)
    for number in range(1, shards):
        shard = ShardServer(
            number=number, hub=Remote(host="127.0.0.1", port=port), key=key,
            path=str(directory / f"shard-{number}"), clock_s=time.monotonic,
        )  # fmt: skip
        run.shards.append(shard)
        _spin(run, shard.serve)
    return run


def _spin(run: Run, serve: Callable[[], Any]) -> None:
    run.threads.append(threading.Thread(target=serve))
    run.threads[-1].start()


@pytest.fixture(scope="module", autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    """Looked at once a module: collecting garbage takes as long as a test."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.fixture
def start() -> Callable[[int], Any]:
    """``with start(2) as run:``"""
    return running
