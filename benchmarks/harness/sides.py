"""One side of a comparison: processes that are started once and then take turns with another side's.

While a side is not asked for anything its processes sleep in a blocking read. Knows how to start,
ask, measure from outside and end them; not what they compute.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from prediction.namespaces import PORT, Host

from paceline.launch.allocator import allocator_environment

HOME = Path(__file__).resolve().parent.parent
SCRIPTS = HOME / "scripts"
START_WITHIN_S = 120.0
ANSWER_WITHIN_S = 120.0
END_WITHIN_S = 60.0
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class SideFailedError(Exception):
    """``side`` did not start, answer or end as it should; with the end of what it printed."""

    def __init__(self, side: Side, text: str) -> None:
        super().__init__(text)
        self.side = side


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start a side. ``commands``: one per process to start, with its extra environment.

    ``workers``: how many of its processes will call in. ``{line}`` and ``{out}`` in a command are
    replaced by the socket's path and a directory for what is recorded.
    """

    name: str
    workers: int
    commands: Sequence[tuple[Sequence[str], Mapping[str, str]]] = field(repr=False)


def paceline_run(
    script: str, *arguments: str, workers: int, strategy: str, accumulate: int = 1
) -> Launch:
    """A script under ``paceline run``, one thread per worker, all else by default."""
    command = [sys.executable, "-m", "paceline.cli", "run", "-n", str(workers)]
    command += ["--strategy", strategy, "--threads", "1", "--quiet", "--out", "{out}"]
    command += ["--accumulate", str(accumulate), str(SCRIPTS / script), "--line", "{line}"]
    return Launch(
        name=f"{strategy} on {workers}", workers=workers, commands=[([*command, *arguments], {})]
    )


def torch_group(script: str, *arguments: str, workers: int) -> Launch:
    """``workers`` processes with torch.distributed's environment, as torchrun would start them."""
    command = [sys.executable, str(SCRIPTS / script), "--line", "{line}", *arguments]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()}
    return Launch(
        name=f"{script} on {workers}",
        workers=workers,
        commands=[(command, one) for one in _ranked(workers, shared)],
    )


def on_hosts(script: str, *arguments: str, places: Sequence[Host]) -> Launch:
    """The same with a process on each of these hosts."""
    command = [sys.executable, str(SCRIPTS / script), "--line", "{line}", *arguments]
    shared = {
        "MASTER_ADDR": places[0].address, "MASTER_PORT": _free_port(), "GLOO_SOCKET_IFNAME": PORT,
        "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
    }  # fmt: skip
    ranked = _ranked(len(places), shared)
    return Launch(
        name=f"{script} on {len(places)} hosts",
        workers=len(places),
        commands=[(host.command(*command), one) for host, one in zip(places, ranked, strict=True)],
    )


def forking(script: str, *arguments: str, workers: int) -> Launch:
    """One process that forks its workers itself."""
    command = [sys.executable, str(SCRIPTS / script), "--line", "{line}"]
    command += ["--workers", str(workers), *arguments]
    return Launch(name=f"{script} on {workers}", workers=workers, commands=[(command, {})])


class Side:
    """A started side. ``out``: its recording; ``asked``: whether an answer is due."""

    def __init__(self, launch: Launch, directory: Path) -> None:
        self.launch = launch
        self.out = directory / "out"
        self._log = directory / "log"
        self._address = str(directory / "line")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lines: list[socket.socket] = []

    def start(self) -> None:
        """Start the processes and wait until every worker has called in."""
        with socket.socket(socket.AF_UNIX) as listener, self._log.open("ab") as log:
            listener.bind(self._address)
            listener.listen(self.launch.workers)
            listener.settimeout(0.2)
            for command, environment in self.launch.commands:
                self._processes.append(self._popen(command, environment, log))
            self._accept(listener, time.monotonic() + START_WITHIN_S)

    def ask(self, do: str, **arguments: Any) -> list[dict[str, Any]]:
        """Have all workers do something at once; their answers in rank order."""
        self.tell(do, **arguments)
        return self.answers()

    def tell(self, do: str, **arguments: Any) -> None:
        """Give a command; :meth:`answers` must follow."""
        order = json.dumps({"do": do, **arguments}).encode() + b"\n"
        for line in self._lines:
            line.sendall(order)

    def answers(self, timeout_s: float = ANSWER_WITHIN_S) -> list[dict[str, Any]]:
        """The answers to the last command, in rank order."""
        by_s = time.monotonic() + timeout_s
        answers = [self._answer(line, by_s) for line in self._lines]
        return sorted(answers, key=lambda answer: answer["rank"])

    def answered(self, within_s: float) -> bool:
        """Whether an answer has begun to arrive, after waiting at most so long."""
        return bool(select.select(self._lines, [], [], within_s)[0])

    def family(self) -> list[psutil.Process]:
        """Every process of this side: launcher, server, workers."""
        found = []
        for process in self._processes:
            with suppress(psutil.Error):
                one = psutil.Process(process.pid)
                found += [one, *one.children(recursive=True)]
        return found

    def pss_bytes(self) -> int:
        """Memory of all its processes; a page that k processes share counts 1/k for each."""
        return sum(process.memory_full_info().pss for process in self.family())

    def server_cpu_s(self) -> float:
        """Processor seconds that paceline's server has used; 0 if there is none."""
        servers = [one for one in self.family() if "paceline.server" in one.cmdline()]
        return float(sum(sum(one.cpu_times()[:2]) for one in servers))

    def cpu_s(self) -> float:
        """Processor seconds that all its processes have used."""
        return float(sum(sum(one.cpu_times()[:2]) for one in self.family()))

    def end(self) -> None:
        """Close the line, which ends the scripts, and wait for them. Raises SideFailedError."""
        self._close_lines()
        by_s = time.monotonic() + END_WITHIN_S
        for process in self._processes:
            try:
                code = process.wait(max(0.1, by_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise self._failed("did not end") from None
            if code:
                raise self._failed(f"ended with {code}")

    def kill(self) -> None:
        """End whatever is left, kindly first; nothing to do after :meth:`end`."""
        self._close_lines()
        family = self.family()
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=4)
        for left in alive:
            with suppress(psutil.Error):
                left.kill()
        for process in self._processes:
            process.wait()

    def _popen(
        self, command: Sequence[str], extra: Mapping[str, str], log: Any
    ) -> subprocess.Popen[bytes]:
        places = {"{line}": self._address, "{out}": str(self.out)}
        return subprocess.Popen(
            [places.get(word, word) for word in command],
            env={**os.environ, **_environment(), **extra},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is ours to handle
        )

    def _accept(self, listener: socket.socket, by_s: float) -> None:
        while len(self._lines) < self.launch.workers:
            try:
                self._lines.append(listener.accept()[0])
            except TimeoutError:
                if time.monotonic() > by_s:
                    raise self._failed("did not start in time") from None
                if any(process.poll() is not None for process in self._processes):
                    raise self._failed("ended before it was ready") from None
        self.answers()

    def _answer(self, line: socket.socket, by_s: float) -> dict[str, Any]:
        text = b""
        while not text.endswith(b"\n"):
            if not select.select([line], [], [], max(0.0, by_s - time.monotonic()))[0]:
                raise self._failed("does not answer")
            piece = line.recv(65536)
            if not piece:
                raise self._failed("a worker ended")
            text += piece
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _close_lines(self) -> None:
        for line in self._lines:
            line.close()
        self._lines = []

    def _failed(self, what: str) -> SideFailedError:
        time.sleep(0.5)  # for its last words
        words = self._log.read_text(errors="replace").strip().splitlines()[-12:]
        return SideFailedError(self, "\n  ".join([f"{self.launch.name}: {what}", *words]))


@contextmanager
def started(*launches: Launch, directory: Path) -> Iterator[list[Side]]:
    """These sides, started one after another; all processes are gone at the end, come what may."""
    with ExitStack() as stack:
        sides = []
        for launch in launches:
            place = directory / f"{len(list(directory.iterdir()))}"
            place.mkdir()
            side = Side(launch, place)
            stack.callback(side.kill)
            side.start()
            sides.append(side)
        yield sides
        for side in sides:
            side.end()


def _environment() -> dict[str, str]:
    """What every side gets: ours by ``paceline run`` anyway, the peers in the name of fairness."""
    path = os.pathsep.join([str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**dict.fromkeys(THREADS, "1"), **allocator_environment(), "PYTHONPATH": path}


def _ranked(workers: int, shared: Mapping[str, str]) -> list[dict[str, str]]:
    return [{**shared, "WORLD_SIZE": str(workers), "RANK": str(rank)} for rank in range(workers)]


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
