"""A server that listens to other hosts, in a thread of this process."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.server import plane as _loaded_before_any_test_waits  # noqa: F401  it has torch
from paceline.server.app import Server
from paceline.transport.addresses import Remote
from paceline.transport.keys import make_key, read_key
from paceline.transport.sockets import listen_on

ENDS_WITHIN_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Places:
    """``near``: for workers of the server's host; ``far``: for others, who need the key in ``key``."""

    near: str
    far: str
    port: int
    key: Path


@pytest.fixture
def places() -> Iterator[Places]:
    """It must end by itself with the test's workers, and leave no descriptor open."""
    before = len(os.listdir("/proc/self/fd"))
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        directory = Path(name)
        make_key(directory / "key")
        listener = listen_on(Remote(host="127.0.0.1", port=0))
        port = listener.getsockname()[1]
        server = Server(
            address=str(directory / "server"), out=directory, linger_s=30.0,
            clock_s=time.monotonic, abroad=(listener, read_key(directory / "key")),
        )  # fmt: skip
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield Places(
                near=str(directory / "server"), far=f"tcp://127.0.0.1:{port}", port=port,
                key=directory / "key",
            )  # fmt: skip
            thread.join(ENDS_WITHIN_S)
            assert not thread.is_alive(), "the server did not end with its last worker"
        finally:
            server.loop.stop()
            thread.join(ENDS_WITHIN_S)
        del server, listener
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before
