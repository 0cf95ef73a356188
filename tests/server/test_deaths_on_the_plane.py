"""kill -9 and SIGSTOP of a worker at each point of the protocol, under each kind of strategy."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from paceline import events
from paceline.transport import messages
from paceline.transport.channel import Channel, ChannelClosedError
from server.stand_in import StandIn, observe
from server.test_server_plane import facts, gradients, start, tensors, until_ended
from server.victims import kill, victim

TOTAL = 8


def enter(worker: StandIn, strategy: str) -> None:
    """Send Open (it is answered when all have)."""
    worker.data.send(worker.opening(tensors(0), strategy))


def begin(worker: StandIn) -> None:
    reply = worker.hear(30.0)
    assert isinstance(reply, messages.Opened), reply
    worker.open_pass(TOTAL)


def in_the_window(worker: StandIn) -> None:
    assert isinstance(start(worker), messages.Started)


def after_the_push_was_sent(worker: StandIn) -> None:
    in_the_window(worker)
    worker.fill(gradients(1, 0))
    worker.data.send(worker.pushing(gradients(1, 0)))


def after_the_decision(worker: StandIn) -> None:
    in_the_window(worker)
    worker.push(gradients(1, 0))


def while_asking_to_start(worker: StandIn) -> None:
    worker.data.send(messages.Ready())


def while_evaluating(worker: StandIn) -> None:
    assert isinstance(worker.ask(messages.Read()), messages.Latest)


POINTS: list[Callable[[StandIn], None]] = [
    in_the_window,
    after_the_push_was_sent,
    after_the_decision,
    while_asking_to_start,
    while_evaluating,
]


def train_to_the_end(worker: StandIn) -> int:
    pushed = 0
    while isinstance(reply := start(worker), messages.Started):
        assert worker.push(gradients(worker.rank, pushed)).applied
        pushed += 1
    assert isinstance(reply, messages.Ended), reply
    return pushed


@pytest.mark.parametrize("strategy", ["async", pytest.param("ssp:3", marks=pytest.mark.full)])
@pytest.mark.parametrize("point", POINTS)
def test_per_push_strategies_finish_every_batch_without_the_dead(
    near_server: str, directory: Path, strategy: str, point: Callable[[StandIn], None]
) -> None:
    seen = observe(near_server, 2)
    survivor = StandIn(near_server, 0, 2)
    enter(survivor, strategy)

    def work() -> None:
        worker = StandIn(near_server, 1, 2)
        enter(worker, strategy)
        begin(worker)
        point(worker)

    with victim(work, meanwhile=lambda: begin(survivor)) as pid:
        kill(pid)
        train_to_the_end(survivor)
        survivor.leave()
        until_ended(near_server)
    records = facts(directory)
    [release] = [one for one in records if isinstance(one, events.Release) and one.rank == 1]
    updates = [one for one in records if isinstance(one, events.Update)]
    assert updates[-1].progress == TOTAL
    pushed = point in (after_the_push_was_sent, after_the_decision)
    assert [update.ranks for update in updates].count((1,)) == pushed
    assert release.clock == pushed
    died = wait_for_notice(seen, "died").text
    assert died.startswith(f"rank 1 (pid {pid}) died at clock {release.clock}")
    assert ("handed out again" in died) == bool(release.returned)
    seen.close()


@pytest.mark.parametrize("strategy", ["sync:server", pytest.param("ssp:0", marks=pytest.mark.full)])
@pytest.mark.parametrize("point", [in_the_window, after_the_push_was_sent, while_asking_to_start])
def test_sync_stops_the_others_naming_the_dead(
    near_server: str, strategy: str, point: Callable[[StandIn], None]
) -> None:
    survivor = StandIn(near_server, 0, 2)
    enter(survivor, strategy)

    def work() -> None:
        worker = StandIn(near_server, 1, 2)
        enter(worker, strategy)
        begin(worker)
        point(worker)

    with victim(work, meanwhile=lambda: begin(survivor)) as pid:
        kill(pid)
        stop = survivor.control.receive(5.0)
        assert (stop.kind, stop.rank) == ("peer-lost", 1)
        assert "rank 1 died" in stop.text
        assert f"pid {pid}" in stop.text
        assert survivor.hear(5.0) == stop
        assert start(survivor) == stop
        survivor.leave("departed")


def test_backup_workers_make_up_for_a_death(near_server: str, directory: Path) -> None:
    survivors = [StandIn(near_server, rank, 3) for rank in (0, 2)]
    for worker in survivors:
        enter(worker, "backup:1")

    def work() -> None:
        worker = StandIn(near_server, 1, 3)
        enter(worker, "backup:1")
        begin(worker)
        in_the_window(worker)

    with victim(work, meanwhile=lambda: [begin(worker) for worker in survivors]) as pid:
        kill(pid)
        while survivors:
            for worker in survivors:
                worker.data.send(messages.Ready())
            for worker in list(survivors):
                if isinstance(worker.hear(5.0), messages.Ended):
                    survivors.remove(worker)
                    worker.leave()
                else:
                    worker.data.send(worker.pushing(gradients(worker.rank, 0)))
            for worker in survivors:
                assert isinstance(worker.hear(5.0), messages.Decided)
        until_ended(near_server)
    updates = [one for one in facts(directory) if isinstance(one, events.Update)]
    assert updates[-1].progress >= TOTAL - 1


@pytest.mark.parametrize("strategy", ["async", "sync:server"])
def test_a_stopped_worker_is_evicted_and_what_it_says_later_is_refused(
    near_server: str, strategy: str
) -> None:
    seen = observe(near_server, 2)
    survivor = StandIn(near_server, 0, 2, evict_after_s=1.5)
    enter(survivor, strategy)
    go, going = os.pipe()
    said, saying = os.pipe()
    lives: list[StandIn] = []

    def work() -> None:
        worker = StandIn(near_server, 1, 2, evict_after_s=1.5)
        enter(worker, strategy)
        begin(worker)
        in_the_window(worker)
        worker.beat("backward")
        lives.append(worker)

    def afterwards() -> None:
        os.read(go, 1)
        os.write(saying, lives[0].push(gradients(1, 0)).kind.encode())

    with victim(work, afterwards, lambda: begin(survivor)) as pid, beating(survivor):
        in_the_window(survivor)
        os.kill(pid, signal.SIGSTOP)
        evicted = wait_for_notice(seen, "evicted")
        assert f"rank 1 (pid {pid}) was silent for" in evicted.text
        assert "phase 'backward'" in evicted.text
        if strategy == "async":
            assert survivor.push(gradients(0, 0)).applied
        else:
            stop = survivor.hear(5.0)
            assert (stop.kind, stop.rank) == ("peer-lost", 1)
            assert "rank 1 was silent" in stop.text
            assert f"pid {pid}" in stop.text
        os.write(going, b"g")
        os.kill(pid, signal.SIGCONT)
        assert os.read(said, 100) == b"evicted"
        survivor.leave("departed")
    for fd in (go, going, said, saying):
        os.close(fd)
    seen.close()


@contextmanager
def beating(worker: StandIn) -> Iterator[None]:
    """Heartbeats from a thread, as a real worker has."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(0.2):
            with suppress(ChannelClosedError):
                worker.beat()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def wait_for_notice(seen: Channel, kind: str) -> messages.Notice:
    while True:
        notice = seen.receive(10.0)
        if isinstance(notice, messages.Notice) and notice.kind == kind:
            return notice
