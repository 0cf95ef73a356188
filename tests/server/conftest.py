"""A server of its own for each test that asks, and proof that it ended and left nothing."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.server.process import ServerProcess, start_server

ENDS_WITHIN_S = 10.0


@pytest.fixture
def directory() -> Iterator[Path]:
    """A private directory with a name short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        yield Path(name)


@pytest.fixture
def server(directory: Path) -> Iterator[ServerProcess]:
    """A server that must end by itself once the test's workers are gone (or was told to)."""
    server = start_server(directory=directory, out=directory, parent_pid=os.getpid())
    try:
        yield server
        server.wait(ENDS_WITHIN_S)
        assert not (directory / "server").exists()
    except subprocess.TimeoutExpired:
        pytest.fail("the server did not end with its last worker")
    finally:
        server.stop()
