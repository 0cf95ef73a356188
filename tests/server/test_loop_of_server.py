"""The order in which the server serves: a late heartbeat is never the fault of a long update."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from paceline.server.deaths import Deaths, has_ended
from paceline.server.loop import Loop


class Pipe:
    """Something to read that logs when it is served."""

    def __init__(self, loop: Loop, name: str, log: list[str], *, urgent: bool) -> None:
        self.reading, self.writing = os.pipe()
        self._name = name
        self._log = log
        self.source = loop.add(self.reading, self._on_ready, urgent=urgent)

    def send(self, count: int = 1) -> None:
        os.write(self.writing, b"x" * count)

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)

    def _on_ready(self, _events: int) -> None:
        os.read(self.reading, 1)
        self._log.append(self._name)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loop(clock: Clock) -> Iterator[Loop]:
    loop = Loop(clock)
    yield loop
    loop.close()


def test_urgent_ones_come_first_then_timers_then_one_other(loop: Loop, clock: Clock) -> None:
    log: list[str] = []
    pipes = [Pipe(loop, name, log, urgent=name.startswith("u")) for name in ("a", "u1", "b", "u2")]
    for pipe in pipes:
        pipe.send()
    loop.call_at(5.0, lambda: log.append("late"))
    loop.call_at(1.0, lambda: log.append("timer"))
    clock.now_s = 2.0
    loop.turn()
    assert sorted(log[:2]) == ["u1", "u2"]
    assert log[2] == "timer"
    assert log[3] in ("a", "b")
    assert len(log) == 4
    for pipe in pipes:
        pipe.close()


def test_a_busy_worker_does_not_starve_the_others(loop: Loop) -> None:
    log: list[str] = []
    pipes = [Pipe(loop, name, log, urgent=False) for name in "abc"]
    for pipe in pipes:
        pipe.send(10)
    for _ in range(6):
        loop.turn()
    assert sorted(log[:3]) == sorted(log[3:]) == ["a", "b", "c"]
    for pipe in pipes:
        pipe.close()


def test_a_source_removed_in_the_same_turn_is_not_served(loop: Loop) -> None:
    log: list[str] = []
    first, second = (Pipe(loop, name, log, urgent=True) for name in "ab")
    loop.remove(first.source)
    loop.remove(first.source)
    first.send()
    second.send()
    loop.turn()
    assert log == ["b"]
    for pipe in (first, second):
        pipe.close()


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_a_death_is_seen_with_and_without_pidfd(
    loop: Loop, clock: Clock, has_pidfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_pid: int) -> int:
        raise PermissionError

    if not has_pidfd:
        monkeypatch.setattr(os, "pidfd_open", refused)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    deaths, died = Deaths(loop), []
    deaths.watch(process.pid, lambda: died.append(process.pid))
    deaths.poll()
    assert not died
    assert not has_ended(process.pid)
    process.kill()
    while not has_ended(process.pid):  # a zombie: nobody has collected it
        os.sched_yield()
    if has_pidfd:
        loop.turn()
    deaths.poll()
    deaths.poll()
    assert died == [process.pid]
    process.communicate()
    deaths.close()


def test_a_process_that_is_gone_already_is_reported_too(loop: Loop) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    died: list[int] = []
    deaths = Deaths(loop)
    deaths.watch(process.pid, lambda: died.append(1))
    loop.turn()
    assert died == [1]


def test_what_is_put_off_comes_when_nothing_else_is_ready(loop: Loop) -> None:
    log: list[str] = []
    pipes = [Pipe(loop, name, log, urgent=False) for name in ("a", "b")]
    for pipe in pipes:
        pipe.send()
    loop.when_quiet(lambda: log.append("quiet"))
    for _ in range(3):
        loop.turn()
    assert log == ["a", "b", "quiet"]
    for pipe in pipes:
        loop.remove(pipe.source)
        pipe.close()
