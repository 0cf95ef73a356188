"""A training played by stand-ins in threads: what each does is fixed, when it does it is left to chance.

A gradient depends on the rank, on how many it has made and on the parameters read, so any change of
order changes the bits. Each worker has a process of its own (``sleep``) that can be killed for it.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from paceline import trace
from paceline.replay.record import entries
from paceline.replay.recorded_order import RecordedOrder
from paceline.server.app import Server
from paceline.transport import messages
from paceline.transport.channel import ChannelClosedError
from paceline.transport.shared_memory import Region
from server.stand_in import StandIn, _layout

TOTAL = 14
VALUES = [torch.linspace(-1.0, 1.0, 6).reshape(2, 3), torch.ones(2)]


@dataclass(frozen=True, kw_only=True)
class Play:
    """``killed``: (rank, windows) after which it dies by its own hand. ``silent``: the same, but it only
    falls silent. ``perturbed``: (rank, window) whose gradient is another by the last bit.
    ``generations``: Workers one after another. ``saves``: every so many windows; ``breaks``: a rank
    that leaves its first pass early."""

    strategy: str
    workers: int = 3
    passes: int = 2
    killed: tuple[int, int] | None = None
    silent: tuple[int, int] | None = None
    perturbed: tuple[int, int] | None = None
    breaks: int | None = None
    generations: int = 1
    evict_after_s: float = 30.0
    hurried: bool = False


@dataclass(kw_only=True)
class Played:
    """``parameters``: each finishing rank's last, as bytes; ``stops``: what ranks were stopped with."""

    directory: Path
    parameters: dict[int, bytes]
    stops: dict[int, str]
    writers: list[tuple[int, int]]
    """(rank, version) of every checkpoint taken."""
    seen: dict[int, list[int]]
    """Versions that each rank looked at beside its windows."""

    def records(self) -> list[Any]:
        with (self.directory / "server.jsonl").open("rb") as lines:
            return [r for r in trace.decode_lines(lines) if not isinstance(r, trace.Note)]

    def decisions(self) -> list[Any]:
        """All but what depends on the clock: the encounters' own times, and the header."""
        timed = (trace.Header,)
        return [
            replace(one, time_s=0.0) if hasattr(one, "time_s") else one
            for one in self.records()
            if not isinstance(one, timed)
        ]


class _OverError(Exception):
    """This worker's part is over: it was stopped, or is dead."""


class Actor:
    """One rank of the play."""

    def __init__(self, play: Play, played: Played, address: str, rank: int) -> None:
        self.play, self.played, self.address, self.rank = play, played, address, rank
        self.pace = random.Random()
        self.process: subprocess.Popen[bytes] | None = None
        self.made = 0

    def act(self) -> None:
        region = Region.create(_layout(VALUES).total_bytes)
        self.process = subprocess.Popen(["sleep", "100"], pass_fds=[region.fd])
        try:
            for _ in range(self.play.generations):
                self.live(region)
        except (_OverError, ChannelClosedError):
            pass
        finally:
            self.process.kill()
            self.process.wait()
            region.close()

    def live(self, region: Region) -> None:
        assert self.process is not None
        self.worker = StandIn(
            self.address, self.rank, self.play.workers,
            evict_after_s=self.play.evict_after_s, pid=self.process.pid,
        )  # fmt: skip
        self.worker.region = region
        try:
            self.ask(messages.Gather(tag="manifest", payload=b"x"))
            self.ask(self.worker.opening(VALUES, self.play.strategy, optimizer=_MOMENTUM))
            for pass_id in range(self.play.passes):
                self.go_through(pass_id)
            self.played.parameters[self.rank] = b"".join(
                value.contiguous().numpy().tobytes() for value in self.worker.parameters
            )
            self.ask(messages.Fetch())
            self.ask(messages.Bye(reason="finished"))
        finally:
            for channel in (self.worker.control, self.worker.data):
                channel.close()

    def go_through(self, pass_id: int) -> None:
        depth = 2 + self.rank
        self.request(pass_id, depth)
        for window in range(1000):
            reply = self.ask(messages.Ready())
            if isinstance(reply, messages.Ended):
                break
            self.dawdle()
            self.strike(self.play.killed, self.die)
            self.strike(self.play.silent, self.fall_silent)
            self.push(reply)
            if self.made % 4 == self.rank % 4:
                self.played.seen[self.rank].append(self.ask(messages.Read()).version)
            if window % 3 == 2:
                self.save(pass_id, window)
            if (self.rank, pass_id, window) == (self.play.breaks, 0, 1):
                self.request(pass_id, 0)
        self.ask(messages.Gather(tag="end", payload=bytes([self.rank])))

    def request(self, pass_id: int, depth: int) -> None:
        self.ask(
            messages.OpenPass(
                pass_id=pass_id, total=TOTAL, window=2, depth=depth, weight=8.0, split=True
            )
        )

    def push(self, started: messages.Started) -> None:
        self.made += 1
        around = sum(float(value.sum()) for value in self.worker.parameters)
        gradients = [torch.full_like(value, 0.01 * (self.made + around)) for value in VALUES]
        gradients[0][0, 0] += self.rank
        if self.play.perturbed == (self.rank, self.made):
            gradients[0][0, 0] += 0.001
        bad = "p0" if (self.made + self.rank) % 6 == 5 else ""
        self.worker.fill(gradients)
        weight = 4.0 * len(started.batches)
        self.ask(self.worker.pushing(gradients, weight, bad=bad))

    def save(self, pass_id: int, window: int) -> None:
        together = self.play.strategy in ("sync:server", "ssp:0")
        part = messages.HandIn(pass_id=pass_id, number=window, together=together, part=b"")
        if self.ask(part).turn:
            version = self.ask(messages.TakeCut()).version
            self.played.writers.append((self.rank, version))

    def ask(self, message: messages.Message) -> Any:
        """Send and wait; over once this worker's process is dead, or it is told to stop."""
        assert self.process is not None
        self.dawdle()
        if isinstance(message, messages.Ready) and self.worker._next is not None:
            started, self.worker._next = self.worker._next, None
            return started
        self.worker.data.send(message)
        by_s = time.monotonic() + 30.0
        while self.process.poll() is None and time.monotonic() < by_s:
            with suppress(TimeoutError):
                self.worker.beat()
                reply = self.worker.hear(0.1)
                if isinstance(reply, messages.Stop):
                    self.played.stops[self.rank] = reply.text
                    raise _OverError
                return reply
        raise _OverError

    def dawdle(self) -> None:
        if not self.play.hurried:
            time.sleep(self.pace.random() * 0.002)

    def strike(self, point: tuple[int, int] | None, blow: Any) -> None:
        if point == (self.rank, self.made):
            blow()

    def die(self) -> None:
        assert self.process is not None
        self.process.kill()
        raise _OverError

    def fall_silent(self) -> None:
        reply = self.worker.hear(30.0)
        self.played.stops[self.rank] = reply.text
        raise _OverError


_MOMENTUM = ("SGD", {"lr": 0.1, "momentum": 0.9})


def perform(
    play: Play, directory: Path, *, again: Played | None = None, until: int | None = None
) -> Played:
    """Play it, recorded in ``directory``; in the order of ``again``, if given."""
    directory.mkdir()
    options: dict[str, Any] = {}
    if again is not None:
        record = entries(again.directory / "server.jsonl")
        options["turns"] = lambda recorder: RecordedOrder(
            record, until=until, recorder=recorder, clock_s=time.monotonic, end_process=_kill
        )
    address = str(directory / "s")
    server = Server(
        address=address, out=directory, linger_s=30.0, clock_s=time.monotonic, **options
    )
    server.hub.watch_parent(os.getpid())  # as under paceline run: it does not end between Workers
    played = Played(
        directory=directory, parameters={}, stops={}, writers=[],
        seen={rank: [] for rank in range(play.workers)},
    )  # fmt: skip
    threads = [
        threading.Thread(target=Actor(play, played, address, rank).act)
        for rank in range(play.workers)
    ]
    serving = threading.Thread(target=server.serve)
    for thread in [serving, *threads]:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    server.loop.stop()
    serving.join(10.0)
    assert not serving.is_alive()
    return played


def _kill(pid: int) -> None:
    os.kill(pid, 9)
