"""Watches over a run's processes: one loop that passes output on, listens and reaps.

Survivors survive: a worker that was killed ends nobody here. Whether the others can go on without
it is the server's decision, and they stop by themselves; the supervisor only ends those that have
not done so in time, and at the end everything that is left.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import IO, Protocol

from paceline.launch.observer import Observer, Report
from paceline.launch.output import LineSplitter, StreamName
from paceline.launch.signals import CaughtSignals
from paceline.launch.summary import NoticeResult
from paceline.launch.verdict import Loss, WorkerEnd
from paceline.launch.workers import WorkerProcess
from paceline.transport.messages import Notice, Progress

POLL_S = 0.1
STOP_GRACE_S = 10.0
"""How long workers have to stop by themselves once one has failed or cannot be replaced."""
ASKED_GRACE_S = 0.9
TERMINATED_GRACE_S = 0.2
"""From asking to SIGTERM to SIGKILL: what was recorded is flushed, and Ctrl-C ends all in 2 s."""
GROUP_GRACE_S = 0.4
READ_BYTES = 64 * 2**10
QUIET_KINDS = ("joined", "left")


class Source(Protocol):
    """Something a selector can wait for."""

    def fileno(self) -> int: ...


class Output(Protocol):
    """What the supervisor shows: see :class:`paceline.launch.output.Console`."""

    @property
    def say(self) -> Callable[[str], None]: ...

    @property
    def status(self) -> Callable[[str], None]: ...

    def worker_line(self, stream: StreamName, rank: int, text: str) -> None: ...


class Server(Protocol):
    """What the supervisor needs of the server process."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """The exit code, None while it runs."""


class Supervisor:
    """The workers of one run, their output, and what the server says about them."""

    def __init__(self, *, signals: CaughtSignals, console: Output, server: Server | None) -> None:
        self.notices: list[NoticeResult] = []
        self.server_end: int | None = None
        self._signals = signals
        self._console = console
        self._server = server
        self._workers: list[WorkerProcess] = []
        self._losses: dict[int, Loss] = {}
        self._ended_by_us: set[int] = set()
        self._observer: Observer | None = None
        self._stop_by_s: float | None = None
        self._started_s = time.monotonic()
        self._asides: list[Callable[[], str]] = []
        self._selector = selectors.DefaultSelector()
        self._register(signals, partial(self._selector.unregister, signals))

    def listen(self, observer: Observer) -> None:
        """Heed what the server reports."""
        self._observer = observer
        self._register(observer, partial(self._read_reports, observer))

    def ask(self, aside: Callable[[], str]) -> None:
        """Ask for something to say now and then, while workers run; "": nothing."""
        self._asides.append(aside)

    def add(self, worker: WorkerProcess) -> None:
        """Watch over this worker too."""
        self._workers.append(worker)
        for stream, pipe in worker.pipes.items():
            read = partial(self._read_output, worker.rank, stream, pipe, LineSplitter())
            self._register(pipe, read)

    def watch(self) -> None:
        """Return when every worker that still counts has ended, or has had its time, or Ctrl-C."""
        while self._awaited() and self._signals.first is None and not self._too_late():
            self._turn()
            for text in filter(None, (aside() for aside in self._asides)):
                self._console.say(text)

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Go on listening until ``done()``, or Ctrl-C, or the end of this host's server, if it has one."""
        while not done() and not self.interrupted() and not self._server_ended():
            self._turn()

    def interrupted(self) -> bool:
        """Whether a signal has come."""
        return self._signals.first is not None

    def _server_ended(self) -> bool:
        return self._server is not None and self._server.poll() is not None

    def end(self) -> None:
        """End every process that is left, pass on the last output, let go of everything."""
        self._ended_by_us.update(worker.rank for worker in self._running())
        self._ask_to_end()
        self._turn_until(self._none_to_wait_for, ASKED_GRACE_S)
        for worker in self._running():
            worker.send(signal.SIGTERM)
        self._turn_until(self._none_to_wait_for, TERMINATED_GRACE_S)
        for worker in self._running():
            worker.send(signal.SIGKILL)
            worker.wait()
        self._end_groups()
        self._drain()
        self._console.status("")
        self._selector.close()

    def ends(self) -> list[WorkerEnd]:
        """How each worker ended; to be asked after :meth:`end`."""
        return [self._end_of(worker) for worker in self._workers]

    # ------------------------------------------------------------------------------ the loop

    def _turn(self) -> None:
        for key, _ in self._selector.select(POLL_S):
            key.data()
        for worker in self._running():
            if worker.poll():
                self._note_end(worker)
        self._check_server()

    def _turn_until(self, done: Callable[[], bool], limit_s: float) -> None:
        by_s = time.monotonic() + limit_s
        while not done() and time.monotonic() < by_s:
            self._turn()

    def _note_end(self, worker: WorkerProcess) -> None:
        worker.send_group(signal.SIGTERM)  # what it had started
        if self._end_of(worker).fate in ("raised", "stopped"):
            self._expect_stop()
        if self._observer is not None:
            self._observer.ended(worker.rank, self._end_of(worker).describe())

    def _check_server(self) -> None:
        if self._server is None or self.server_end is not None or self._ended_by_us:
            return
        if not self._awaited():
            return
        code = self._server.poll()
        if code:  # with 0 it saw the last worker leave
            self.server_end = code
            self._console.say("the server is gone; the workers are stopping")
            self._expect_stop()

    def _expect_stop(self) -> None:
        if self._stop_by_s is None:
            self._stop_by_s = time.monotonic() + STOP_GRACE_S

    def _too_late(self) -> bool:
        return self._stop_by_s is not None and time.monotonic() >= self._stop_by_s

    def _running(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers if worker.returncode is None]

    def _awaited(self) -> bool:
        return any(not self._hopeless(worker) for worker in self._running())

    def _hopeless(self, worker: WorkerProcess) -> bool:
        """Given up by the server, and not about to end by itself."""
        loss = self._losses.get(worker.rank)
        return loss in ("evicted", "followed") or (loss == "halted" and worker.is_stopped())

    def _end_of(self, worker: WorkerProcess) -> WorkerEnd:
        assert worker.returncode is not None
        return WorkerEnd(
            rank=worker.rank,
            pid=worker.pid,
            returncode=worker.returncode,
            loss=self._losses.get(worker.rank),
            ended_by_us=worker.rank in self._ended_by_us,
        )

    # ---------------------------------------------------------------------- what it hears

    def _register(self, source: Source, read: Callable[[], object]) -> None:
        self._selector.register(source, selectors.EVENT_READ, read)

    def _read_output(
        self, rank: int, stream: StreamName, pipe: IO[bytes], splitter: LineSplitter
    ) -> None:
        try:
            data = os.read(pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        self._pass_on(rank, stream, splitter.feed(data) if data else splitter.finish())
        if not data:
            self._selector.unregister(pipe)
            pipe.close()

    def _pass_on(self, rank: int, stream: StreamName, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.worker_line(stream, rank, line)

    def _read_reports(self, observer: Observer) -> None:
        for report in observer.read():
            self._heed(report)
        if not observer.open:
            self._selector.unregister(observer)

    def _heed(self, report: Report) -> None:
        if isinstance(report, Progress):
            self._console.status(progress_text(report, time.monotonic() - self._started_s))
        else:
            self._heed_notice(report)

    def _heed_notice(self, notice: Notice) -> None:
        self.notices.append(
            NoticeResult(
                time_s=time.monotonic(), kind=notice.kind, rank=notice.rank, text=notice.text
            )
        )
        if notice.kind not in QUIET_KINDS and not self._ended_by_us:
            self._console.say(notice.text)
        if notice.kind in ("evicted", "followed"):
            self._losses[notice.rank] = notice.kind
        elif notice.kind == "halted":
            self._losses.setdefault(notice.rank, "halted")
            self._expect_stop()

    # ----------------------------------------------------------------------------- the end

    def _ask_to_end(self) -> None:
        """Have the server stop the workers in good order; a worker that is alone is told itself."""
        if self._server is None:
            for worker in self._running():
                worker.send(signal.SIGTERM)
        elif self._running() and self._server.poll() is None:
            os.kill(self._server.pid, signal.SIGTERM)

    def _none_to_wait_for(self) -> bool:
        return not self._awaited()

    def _end_groups(self) -> None:
        """End what the workers had started; first kindly, so that it can clean up behind itself."""
        for worker in self._workers:
            worker.send_group(signal.SIGTERM)
        self._turn_until(self._groups_are_empty, GROUP_GRACE_S)
        for worker in self._workers:
            worker.send_group(signal.SIGKILL)

    def _groups_are_empty(self) -> bool:
        return all(worker.group_is_empty() for worker in self._workers)

    def _drain(self) -> None:
        """Pass on what lies in the pipes; whoever may still hold their other ends is not awaited."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                key.data()
        for worker in self._workers:
            for pipe in worker.pipes.values():
                pipe.close()


def progress_text(progress: Progress, elapsed_s: float) -> str:
    """The status line: how far the run is, how fast since its start."""
    rate = progress.samples / elapsed_s if elapsed_s > 0 else 0.0
    return (
        f"{elapsed_s:5.0f} s   version {progress.version:,}   {progress.live} workers   "
        f"{progress.samples:,.0f} samples   {rate:,.0f} samples/s"
    )
