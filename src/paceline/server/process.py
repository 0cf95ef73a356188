"""Starts the server process and ends it. Knows nothing of what the server does."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.errors import ServerLostError
from paceline.launch.allocator import allocator_environment
from paceline.transport.addresses import Remote

START_WITHIN_S = 30.0
STOP_WITHIN_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerProcess:
    """A server that was started. ``address``: its socket's path, for ``channel.connect``. ``port``: on
    which it listens to other hosts."""

    address: str
    process: subprocess.Popen[bytes]
    port: int | None = None

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        return self.process.poll()

    def wait(self, timeout_s: float) -> int:
        """Its exit status, once it has ended. Raises subprocess.TimeoutExpired."""
        return self.process.wait(timeout_s)

    def stop(self) -> None:
        """End it: kindly first, which tells every worker to stop and keeps what was recorded."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_server(
    *,
    directory: Path,
    out: Path | None,
    parent_pid: int | None,
    linger_s: float = 30.0,
    owns_directory: bool = False,
    replay: Path | None = None,
    until: int | None = None,
    listen: Remote | None = None,
    key: Path | None = None,
    shards: int = 1,
) -> ServerProcess:
    """Start a server with its socket in ``directory`` (private, 0700), and wait until it listens.

    ``out``: where it writes ``server.jsonl``. ``owns_directory``: it removes ``directory`` at its end.
    ``replay``: a ``server.jsonl`` whose order it keeps, ``until``: up to this version. It ends with
    process ``parent_pid`` at the latest. ``listen``: where it listens to workers on other hosts (port 0:
    at any that is free), who must have the key in the file ``key``. ``shards``: it waits for all but one of
    them to come from there (:func:`start_shard`).
    Raises :class:`ServerLostError` if it does not come up. It has a session of its own, so that
    Ctrl-C in a terminal reaches whoever started it, not itself.
    """
    address = str(directory / "server")
    command = [sys.executable, "-P", "-m", "paceline.server", "--socket", address]
    command += ["--linger-s", str(linger_s)]
    command += [] if out is None else ["--out", str(out)]
    command += ["--owns-directory"] if owns_directory else []
    command += [] if replay is None else ["--replay", str(replay)]
    command += [] if until is None else ["--until", str(until)]
    command += [] if listen is None else ["--listen", str(listen)]
    command += [] if key is None else ["--key", str(key)]
    command += [] if shards == 1 else ["--shards", str(shards)]
    command += [] if parent_pid is None else ["--parent", str(parent_pid)]
    return _start(command, address, "server")


def start_shard(
    *, directory: Path, number: int, hub: Remote, key: Path | None, parent_pid: int
) -> ServerProcess:
    """Start shard ``number`` of the run whose server is at ``hub``, as :func:`start_server` does one."""
    address = str(directory / "shard")
    command = [sys.executable, "-P", "-m", "paceline.server.shard_server", "--socket", address]
    command += ["--number", str(number), "--hub", str(hub), "--parent", str(parent_pid)]
    command += [] if key is None else ["--key", str(key)]
    return _start(command, address, f"shard {number}")


def _start(command: list[str], address: str, name: str) -> ServerProcess:
    """Run ``command`` until it says that it is ready. ``name``: what it is."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **allocator_environment()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    server = ServerProcess(address=address, process=process)
    assert process.stdout is not None
    with process.stdout as said:
        ready, _, _ = select.select([said], [], [], START_WITHIN_S)
        words = said.readline().split() if ready else []
        if words[:1] != [b"ready"]:
            server.stop()
            raise ServerLostError(f"the {name} did not start (exit status {server.poll()})")
    return replace(server, port=int(words[1])) if len(words) > 1 else server
