"""Run a script on N worker processes of this host and watch over them: ``paceline run``.

    result = run(RunRequest(script=Path("train.py"), workers=4, strategy="ssp:3"))

Starts the server and the workers, supervises them, leaves a directory with everything recorded and
nothing else: no process, no temporary file.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from paceline import events, trace
from paceline.checkpoints import point_to
from paceline.launch import virtual
from paceline.launch.asides import LiveVerdict, slow_start, stopped_server
from paceline.launch.context import Launch
from paceline.launch.hosts import Hosts
from paceline.launch.meeting import Elsewhere, meet, own_shard
from paceline.launch.memory import PssSampler
from paceline.launch.observer import observe
from paceline.launch.output import Console
from paceline.launch.request import RunRequest, checked, choose_out, left_out_of
from paceline.launch.same_run import launcher_of
from paceline.launch.signals import CaughtSignals
from paceline.launch.summary import (
    RankResult,
    RunResult,
    describe_end,
    describe_start,
    write_summary,
)
from paceline.launch.supervisor import Supervisor
from paceline.launch.verdict import WorkerEnd, judge
from paceline.launch.workers import WorkerFactory, WorkerProcess, is_stopped
from paceline.replay.record import server_record
from paceline.runs import rank_files

if TYPE_CHECKING:
    from paceline.server.process import ServerProcess

MAX_TEMPORARY_PATH = 60
"""A unix socket's path has at most 107 bytes; a long TMPDIR is left alone for /tmp."""


def run(
    request: RunRequest, *, stdout: TextIO | None = None, stderr: TextIO | None = None
) -> RunResult:
    """Carry out ``request`` and say how it ended; blocks until everything has ended.

    Workers' output goes to ``stdout`` and ``stderr`` (None: this process's), prefixed by rank.
    An interrupted run returns too, with exit code 128 + signal. Raises :class:`UsageError` before
    anything has started.
    """
    request = checked(request)
    out = choose_out(request, stamp=time.strftime("%Y%m%d-%H%M%S"))
    if request.resume is not None:
        point_to(out, request.resume)
    start = describe_start(request, started=_now())
    write_summary(out, start)
    result = _Runner(request, out, _console(request, stdout, stderr)).run()
    write_summary(out, describe_end(start, result, ended=_now()))
    return result


class _Runner:
    """One run: the parts, in the order in which they are started and ended."""

    def __init__(self, request: RunRequest, out: Path, console: Console) -> None:
        self._request = request
        self._out = out
        self._console = console
        self._verdict: LiveVerdict | None = None

    def run(self) -> RunResult:
        started_s = time.monotonic()
        with ExitStack() as stack:
            signals = stack.enter_context(CaughtSignals())
            server = self._start_server(stack)
            console = virtual.Unprefixed(self._console) if self._is_virtual else self._console
            supervisor = Supervisor(signals=signals, console=console, server=server)
            self._announce()
            sampler = self._supervise(supervisor, server, stack)
        outcome = virtual.read_outcome(self._out) if self._is_virtual else None
        ends = _with_clocks(self._ends(supervisor, outcome), self._out / "server.jsonl")
        verdict = judge(ends, caught=signals.first, server_end=supervisor.server_end)
        wall_s = time.monotonic() - started_s
        if verdict.exit_code == 0 and self._verdict and (found := self._verdict.last()):
            self._console.say(found)
        self._conclude(verdict.exit_code, f"{verdict.sentence} ({_took(wall_s, outcome)})")
        if verdict.exit_code == 0:
            self._say_if_nothing_was_trained()
        return RunResult(
            exit_code=verdict.exit_code,
            sentence=verdict.sentence,
            out=self._out,
            wall_s=wall_s,
            threads=self._request.threads_each(),
            ranks=[_rank_result(end) for end in ends],
            notices=virtual.notices_of(outcome) or supervisor.notices,
            peak_pss_bytes=sampler.peak_bytes,
            peak_pss_bytes_by_process=sampler.peak_by_name,
            virtual_s=None if outcome is None else outcome.time_s,
        )

    @property
    def _is_virtual(self) -> bool:
        return self._request.virtual is not None

    def _ends(self, supervisor: Supervisor, outcome: virtual.Outcome | None) -> list[WorkerEnd]:
        ends = supervisor.ends()
        if not self._is_virtual:
            return ends
        return virtual.ends_of(ends[0], self._request.workers, outcome)

    def _start_server(self, stack: ExitStack) -> ServerProcess | None:
        hosts = self._request.hosts
        if self._request.world_size == 1 or self._is_virtual or (hosts and hosts.number):
            return None
        from paceline.server.process import start_server

        server = start_server(
            directory=stack.enter_context(_private_directory()), out=self._out,
            parent_pid=os.getpid(), linger_s=inf,
            replay=server_record(self._request.replay), until=self._request.until,
            listen=None if hosts is None else hosts.server, key=None if hosts is None else hosts.key,
            shards=1 if hosts is None else hosts.shards,
        )  # fmt: skip
        stack.callback(server.stop)
        return server

    def _start_shard(self, stack: ExitStack) -> ServerProcess | None:
        hosts = self._request.hosts
        if hosts is None or not hosts.has_shard:
            return None
        shard = own_shard(hosts, stack.enter_context(_private_directory()))
        stack.callback(shard.stop)
        return shard

    def _supervise(
        self, supervisor: Supervisor, server: ServerProcess | None, stack: ExitStack
    ) -> PssSampler:
        if server is not None:
            observer = observe(
                server.address, launcher_of(self._request), workers=self._request.world_size
            )
            stack.callback(observer.close)
            supervisor.listen(observer)
        elif self._request.hosts is not None:
            self._meet(self._request.hosts, supervisor, stack)
        if server is not None:
            supervisor.ask(stopped_server(partial(is_stopped, server.pid), time.monotonic))
        self._ask_for_asides(supervisor, stack)
        given_up = supervisor.interrupted()
        shard = None if given_up else self._start_shard(stack)
        try:
            workers = [] if given_up else self._start_workers(supervisor, server)
            sampler = PssSampler(_named_pids(workers, server))
            sampler.start()
            stack.callback(sampler.stop)
            supervisor.watch()
            if server is not None and self._request.hosts is not None:
                elsewhere = Elsewhere(self._request.ranks, time.monotonic)
                supervisor.wait_for(lambda: elsewhere.over(supervisor.notices))
            if shard is not None:  # workers of other hosts may still need it
                supervisor.wait_for(lambda: shard.poll() is not None)
        finally:
            supervisor.end()
        return sampler

    def _meet(self, hosts: Hosts, supervisor: Supervisor, stack: ExitStack) -> None:
        if not self._request.quiet:
            self._console.say(f"host {hosts.number} of {hosts.count}: meeting at {hosts.server}")
        observer = meet(
            hosts, launcher_of(self._request), workers=self._request.world_size,
            given_up=supervisor.interrupted, say=self._console.say,
        )  # fmt: skip
        if observer is not None:
            stack.callback(observer.close)
            supervisor.listen(observer)

    def _ask_for_asides(self, supervisor: Supervisor, stack: ExitStack) -> None:
        request = self._request
        if request.quiet or self._is_virtual or request.replay is not None:
            return
        supervisor.ask(slow_start(self._out, time.monotonic))
        if request.workers > 1 and request.hosts is None:  # it wants all workers' traces
            self._verdict = LiveVerdict(self._out, shown=_short(self._out))
            stack.callback(self._verdict.close)
            supervisor.ask(self._verdict)

    def _start_workers(
        self, supervisor: Supervisor, server: ServerProcess | None
    ) -> list[WorkerProcess]:
        factory = WorkerFactory(self._request, self._launch(server))
        workers = []
        for rank in (0,) if self._is_virtual else self._request.ranks:
            workers.append(factory.start_all_in_one() if self._is_virtual else factory.start(rank))
            supervisor.add(workers[-1])
        return workers

    def _launch(self, server: ServerProcess | None) -> Launch:
        request = self._request
        cluster, hosts = request.emulate or request.virtual, request.hosts
        address = None if hosts is None else str(hosts.server)
        return Launch(
            world_size=request.world_size,
            server=address if server is None else server.address,
            out=self._out,
            overrides=request.worker_overrides(),
            lr_factor=request.lr_factor,
            emulate=None if cluster is None else cluster.resolve(),
            seed=request.seed,
            launcher_pid=os.getpid(),
            resume=request.resume,
            virtual=self._is_virtual,
            replay=request.replay,
            until=request.until,
            key=None if hosts is None else hosts.key,
            local_world_size=request.workers,
            master_addr=None if hosts is None else hosts.server.host,
            shards=1 if hosts is None else hosts.shards,
        )

    def _announce(self) -> None:
        request = self._request
        kind = "virtual worker" if self._is_virtual else "worker"
        if not request.quiet:
            self._console.say(
                f"{request.script.name} on {_count(request.workers, kind)}"
                f"{'' if request.hosts is None else f' of {request.world_size}'}, "
                f"{_count(request.threads_each(), 'thread')} each, seed {request.seed}; "
                f"recording in {_short(self._out)}"
            )
            if absent := left_out_of(request):
                self._console.say(absent)

    def _say_if_nothing_was_trained(self) -> None:
        if not self._request.quiet and not rank_files(self._out):
            self._console.say(
                f"{self._request.script.name} trained nothing under paceline: it never made a "
                "paceline.Worker, so its workers ran side by side and no strategy applied"
            )

    def _conclude(self, exit_code: int, sentence: str) -> None:
        if self._request.replay is None and (exit_code or not self._request.quiet):
            self._console.say(sentence)


def _console(request: RunRequest, stdout: TextIO | None, stderr: TextIO | None) -> Console:
    errors = stderr or sys.stderr
    return Console(
        stdout=stdout or sys.stdout,
        stderr=errors,
        status=not request.quiet and errors.isatty(),
    )


@contextmanager
def _private_directory() -> Iterator[Path]:
    """A directory that only this user can enter, removed at the end with all it holds."""
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > MAX_TEMPORARY_PATH:
        parent = "/tmp"
    directory = tempfile.mkdtemp(prefix="paceline-", dir=parent)
    try:
        yield Path(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _named_pids(workers: Sequence[WorkerProcess], server: ServerProcess | None) -> dict[str, int]:
    pids = {f"rank {worker.rank}": worker.pid for worker in workers}
    return pids if server is None else {**pids, "server": server.pid}


def _with_clocks(ends: list[WorkerEnd], record: Path) -> list[WorkerEnd]:
    """The ends of lost workers with the clock at which the server let them go, if it did."""
    if all(end.fate == "finished" for end in ends) or not record.exists():
        return ends
    clocks = dict(_released(record))
    return [replace(end, clock=clocks.get(end.rank)) for end in ends]


def _released(record: Path) -> Iterator[tuple[int, int]]:
    with record.open("rb") as lines:
        for line in trace.decode_lines(line for line in lines if line.startswith(b'["release"')):
            if isinstance(line, events.Release):
                yield line.rank, line.clock


def _rank_result(end: WorkerEnd) -> RankResult:
    return RankResult(
        rank=end.rank, pid=end.pid, returncode=end.returncode, fate=end.fate, clock=end.clock
    )


def _took(wall_s: float, outcome: virtual.Outcome | None) -> str:
    """For people: real time, and before it the simulated one if there is any.

    A report's time is shorter: it is of training alone.
    """
    simulated = "" if outcome is None else f"{outcome.time_s:,.1f} s of the cluster's time in "
    return f"{simulated}{wall_s:.1f} s, starting and ending included"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _short(path: Path) -> str:
    """The path as seen from here, if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
