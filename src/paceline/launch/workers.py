"""One worker process: started in a process group of its own, observed, signalled, reaped.

The group holds whatever the worker starts (DataLoader processes), so that nothing outlives it.
Knows nothing of strategies or of what a worker computes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO

import psutil

from paceline.launch import virtual
from paceline.launch.allocator import allocator_environment
from paceline.launch.bootstrap import encode_launch
from paceline.launch.context import Launch
from paceline.launch.output import StreamName
from paceline.launch.request import RunRequest

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


class WorkerProcess:
    """A running or ended worker. ``returncode`` as subprocess has it: negative for a signal."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        self.rank = rank
        self.pid = process.pid
        self._process = process

    @property
    def pipes(self) -> dict[StreamName, IO[bytes]]:
        """The worker's output, readable without blocking."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        return {"stdout": self._process.stdout, "stderr": self._process.stderr}

    @property
    def returncode(self) -> int | None:
        """None while it has not been seen to end (see :meth:`poll`)."""
        return self._process.returncode

    def poll(self) -> bool:
        """Whether the process has ended; reaps it."""
        return self._process.poll() is not None

    def wait(self) -> None:
        """Reap a process that was killed."""
        self._process.wait()

    def is_stopped(self) -> bool:
        """Whether it was stopped (SIGSTOP) and not continued."""
        return is_stopped(self.pid)

    def send(self, number: signal.Signals) -> None:
        """Signal the worker itself, if it has not ended."""
        self._process.send_signal(number)

    def send_group(self, number: signal.Signals) -> None:
        """Signal the worker and everything it started that is still there."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def group_is_empty(self) -> bool:
        """Whether nothing of the worker's process group is left."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # macOS says so of zombies
            return True
        return False


def is_stopped(pid: int) -> bool:
    """Whether the process was stopped (SIGSTOP) and not continued."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


class WorkerFactory:
    """Starts the workers of one run."""

    def __init__(self, request: RunRequest, launch: Launch) -> None:
        self._request = request
        self._launch = launch
        self._environment = {**os.environ, **_shared_environment(request)}

    def start(self, rank: int) -> WorkerProcess:
        """Start worker ``rank``."""
        launch = replace(self._launch, rank=rank, local_rank=rank - self._request.ranks[0])
        return self._start(rank, _command(self._request, launch))

    def start_all_in_one(self) -> WorkerProcess:
        """Start the one process that all workers of a virtual run live in."""
        self._environment.update(virtual.environment())
        request = self._request
        script = [str(request.script), *request.script_args()]
        return self._start(
            0, virtual.command(encode_launch(self._launch), request.threads_each(), script)
        )

    def _start(self, rank: int, command: Sequence[str]) -> WorkerProcess:
        process = subprocess.Popen(
            command,
            env={
                **self._environment,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank - self._request.ranks[0]),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        worker = WorkerProcess(rank, process)
        for pipe in worker.pipes.values():
            os.set_blocking(pipe.fileno(), False)
        return worker


def _command(request: RunRequest, launch: Launch) -> Sequence[str]:
    return [
        sys.executable,
        "-m",
        "paceline.launch.bootstrap",
        "--launch",
        encode_launch(launch),
        str(request.threads_each()),
        str(request.script),
        *request.script_args(),
    ]


def _shared_environment(request: RunRequest) -> Mapping[str, str]:
    """What every worker gets: torch.distributed's variables for scripts that read them, threads,
    and how memory is kept."""
    threads = str(request.threads_each())
    return {
        "WORLD_SIZE": str(request.world_size),
        "LOCAL_WORLD_SIZE": str(request.workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        **dict.fromkeys(THREAD_VARIABLES, threads),
        **allocator_environment(),
        **({} if request.hosts is None else request.hosts.environment()),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
