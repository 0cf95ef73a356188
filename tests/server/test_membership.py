"""Joining, exchanging, leaving, dying and stopping: what the server does on either plane."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from paceline import trace
from paceline.errors import ServerLostError
from paceline.server.process import ServerProcess, start_server
from paceline.transport import messages
from paceline.transport.channel import ChannelClosedError, connect
from paceline.transport.framing import frame
from server.stand_in import StandIn, observe
from server.victims import kill, victim


def gather(worker: StandIn, payload: bytes, tag: str = "t") -> None:
    worker.data.send(messages.Gather(tag=tag, payload=payload))


def notes(directory: Path) -> list[trace.Note]:
    with (directory / "server.jsonl").open("rb") as lines:
        return [one for one in trace.decode_lines(lines) if isinstance(one, trace.Note)]


def test_a_gather_gives_everyone_everything_in_rank_order(server: ServerProcess) -> None:
    workers = [StandIn(server.address, rank, 3) for rank in (2, 0, 1)]
    for again in range(2):
        for worker in workers:
            gather(worker, bytes([worker.rank, again]))
        for worker in workers:
            got = worker.data.receive(5.0)
            assert got == messages.Gathered(
                ranks=[0, 1, 2], payloads=[bytes([rank, again]) for rank in range(3)]
            )
    for worker in workers:
        worker.leave()


def test_large_payloads_to_a_worker_that_does_not_read_hold_up_nobody(
    server: ServerProcess,
) -> None:
    slow, quick = StandIn(server.address, 0, 2), StandIn(server.address, 1, 2)
    large = os.urandom(4_000_000)
    gather(slow, large)
    gather(quick, large)
    assert quick.data.receive(5.0).payloads == [large, large]
    assert slow.data.receive(5.0).payloads == [large, large]
    slow.leave()
    quick.leave()


def test_who_left_leaves_the_count_of_a_gather(server: ServerProcess) -> None:
    first, second, third = (StandIn(server.address, rank, 3) for rank in range(3))
    gather(first, b"a")
    gather(third, b"c")
    second.leave("departed")
    for worker in (first, third):
        assert worker.data.receive(5.0) == messages.Gathered(ranks=[0, 2], payloads=[b"a", b"c"])
        worker.leave()


def test_an_exception_on_one_rank_stops_the_others_with_its_text(server: ServerProcess) -> None:
    seen = observe(server.address, 3)
    failing, waiting, computing = (StandIn(server.address, rank, 3) for rank in range(3))
    gather(waiting, b"")
    failing.control.send(messages.Abort(text="ValueError: no such file"))
    for channel in (waiting.data, waiting.control, computing.data, computing.control):
        stop = channel.receive(5.0)
        assert (stop.kind, stop.rank) == ("peer-failed", 0)
        assert "rank 0" in stop.text
        assert "ValueError: no such file" in stop.text
    assert computing.ask(messages.Gather(tag="later", payload=b"")).kind == "peer-failed"
    for worker in (failing, waiting, computing):
        worker.leave("departed")
    kinds = [seen.receive(5.0).kind for _ in range(7)]
    assert kinds == ["joined"] * 3 + ["halted"] + ["left"] * 3
    with pytest.raises(ChannelClosedError):
        seen.receive(5.0)
    seen.close()


def test_a_killed_worker_is_named_to_the_others_though_its_sockets_stay_open(
    server: ServerProcess, directory: Path
) -> None:
    survivor = StandIn(server.address, 0, 2)

    def work() -> None:
        worker = StandIn(server.address, 1, 2)
        worker.beat("backward", 1.5)
        if os.fork() == 0:  # a DataLoader's child, which holds the sockets
            signal.pause()

    with victim(lambda: (os.setsid(), work())) as pid:
        gather(survivor, b"")
        kill(pid)
        stop = survivor.data.receive(2.0)
        os.killpg(pid, signal.SIGKILL)
    assert (stop.kind, stop.rank) == ("peer-lost", 1)
    assert f"rank 1 (pid {pid}) died" in stop.text
    assert "phase 'backward' for" in stop.text
    survivor.leave("departed")
    server.wait(5.0)
    assert "halted" in [note.kind for note in notes(directory)]


def test_a_silent_worker_is_named_to_the_others_and_refused_later(server: ServerProcess) -> None:
    beating, silent = (StandIn(server.address, rank, 2, evict_after_s=0.6) for rank in range(2))
    silent.beat("data", 0.0)
    gather(beating, b"")
    stop = None
    while stop is None:
        beating.beat("wait")
        try:
            stop = beating.data.receive(0.1)
        except TimeoutError:
            continue
    assert (stop.kind, stop.rank) == ("peer-lost", 1)
    assert "rank 1" in stop.text
    assert "phase 'data'" in stop.text
    assert silent.control.receive(1.0).kind == "evicted"
    assert silent.ask(messages.Gather(tag="t", payload=b"")).kind == "evicted"
    beating.leave()
    silent.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        frame(b"\xc1 not MessagePack"),
        frame(b"\x80\x04\x95"),
        frame(b"\x91\xa3Bye"),
        frame(messages.encode(messages.Gone())),
        frame(messages.encode(messages.Ready())),
        frame(messages.encode(messages.Abort(text="from nobody"))),
    ],
    ids=["huge", "http", "garbage", "pickle", "incomplete", "wrong way", "no hello", "stranger"],
)
def test_frames_that_are_none_close_their_connection_only(
    server: ServerProcess, garbage: bytes
) -> None:
    first, second = (StandIn(server.address, rank, 2) for rank in range(2))
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(server.address)
        stranger.sendall(garbage)
        stranger.settimeout(5.0)
        assert stranger.recv(1) == b""
    for worker in (first, second):
        gather(worker, b"x")
    for worker in (first, second):
        assert worker.data.receive(5.0).ranks == [0, 1]
        worker.leave()


def test_a_frame_torn_off_in_the_middle_holds_up_nobody(server: ServerProcess) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(server.address)
        stranger.sendall(frame(b"x" * 1000)[:500])
        only = StandIn(server.address, 0, 1)
        assert only.ask(messages.Gather(tag="t", payload=b"y")).payloads == [b"y"]
        only.leave()


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        ({"protocol": 99}, "protocol 99"),
        ({"world_size": 3}, "world_size=3: rank 0 said 1"),
        ({"rank": 1}, "expected 0 to 0"),
        ({"pid": 1}, "rank 0 is taken"),
    ],
)
def test_who_does_not_fit_is_refused_with_the_reason(
    server: ServerProcess, hello: dict[str, Any], why: str
) -> None:
    only = StandIn(server.address, 0, 1)
    channel = connect(server.address)
    channel.send(messages.Hello(role="data", **{**only.hello, **hello}))
    stop = channel.receive(5.0)
    assert stop.kind == "refused"
    assert why in stop.text
    channel.close()
    only.leave()


def test_sigterm_tells_everyone_and_keeps_what_was_recorded(
    server: ServerProcess, directory: Path
) -> None:
    worker = StandIn(server.address, 0, 1)
    os.kill(server.pid, signal.SIGTERM)
    for channel in (worker.data, worker.control):
        assert channel.receive(2.0).kind == "shutdown"
        with pytest.raises(ChannelClosedError):
            channel.receive(2.0)
    assert server.wait(2.0) == 0
    assert [note.kind for note in notes(directory)] == ["joined", "halted"]
    worker.close()


def test_the_server_ends_with_its_parent(directory: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    server = start_server(directory=directory, out=None, parent_pid=parent.pid)
    worker = StandIn(server.address, 0, 1)
    parent.kill()
    assert worker.data.receive(5.0).kind == "shutdown"
    server.wait(5.0)
    parent.communicate()
    worker.close()


def test_the_server_ends_if_nobody_comes(directory: Path) -> None:
    server = start_server(directory=directory, out=None, parent_pid=None, linger_s=0.2)
    assert server.wait(5.0) == 0


def test_a_server_that_cannot_start_is_an_error(directory: Path) -> None:
    (directory / "server").write_text("in the way")
    with pytest.raises(ServerLostError):
        start_server(directory=directory, out=None, parent_pid=None)


def test_no_torch_is_loaded_before_the_server_plane_is_asked_for(server: ServerProcess) -> None:
    worker = StandIn(server.address, 0, 1)
    assert worker.ask(messages.Gather(tag="t", payload=b"")).ranks == [0]
    maps = Path(f"/proc/{server.pid}/maps").read_text()
    assert "libtorch" not in maps
    worker.leave()


def test_an_idle_server_uses_no_processor(server: ServerProcess) -> None:
    worker = StandIn(server.address, 0, 1)
    worker.ask(messages.Gather(tag="t", payload=b""))
    before = _cpu_ticks(server.pid)
    time.sleep(1.0)  # the claim is about time that passes
    assert _cpu_ticks(server.pid) - before <= 5
    worker.leave()


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
