"""A server of its own for each test that asks, and proof that it ended and left nothing."""

from __future__ import annotations

import gc
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.server.app import Server
from paceline.server.process import ServerProcess, start_server

ENDS_WITHIN_S = 10.0


@pytest.fixture
def directory() -> Iterator[Path]:
    """A private directory with a name short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        yield Path(name)


@pytest.fixture
def near_server(directory: Path) -> Iterator[str]:
    """The address of a server in a thread of this process, where torch is loaded already.

    It must end by itself with the test's workers, and leave no descriptor open.
    """
    before = len(os.listdir("/proc/self/fd"))
    server = Server(
        address=str(directory / "server"), out=directory, linger_s=30.0, clock_s=time.monotonic
    )
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield str(directory / "server")
        thread.join(ENDS_WITHIN_S)
        assert not thread.is_alive(), "the server did not end with its last worker"
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before
    finally:
        server.loop.stop()
        thread.join(ENDS_WITHIN_S)


@pytest.fixture
def server(directory: Path) -> Iterator[ServerProcess]:
    """A server that must end by itself once the test's workers are gone (or was told to)."""
    server = start_server(directory=directory, out=directory, parent_pid=None)
    try:
        yield server
        server.wait(ENDS_WITHIN_S)
        assert not (directory / "server").exists()
    except subprocess.TimeoutExpired:
        pytest.fail("the server did not end with its last worker")
    finally:
        server.stop()
