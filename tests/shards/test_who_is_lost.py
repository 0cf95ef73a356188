"""Shards and workers that end, liars and strangers at a shard's port, another generation, refusals."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

from hosts.test_remote_plane import end, heard, hung_up, together
from paceline.errors import UsageError
from paceline.transport import messages
from paceline.transport.addresses import remote_from
from paceline.transport.frame_channel import reach
from paceline.transport.frames import Kind, header
from paceline.transport.keys import make_key
from paceline.transport.shard_messages import Laid, SetUp
from server.stand_in import observe
from shards.divided_stand_in import crew

VALUES = [torch.ones(40), torch.zeros(5, 8), torch.full((48,), 0.5)]
Start = Callable[[int], Any]


def step(worker: Any) -> Any:
    assert isinstance(worker.ask(messages.Ready()), messages.Started)
    return worker.push(VALUES)


def test_a_shard_that_ends_stops_the_run_by_its_name(start: Start) -> None:
    with start(2) as run:
        workers = crew(run, (False, True), VALUES, "async", together)
        watcher = observe(run.near, 2)
        for worker in workers:
            worker.open_pass(8)
            assert step(worker).applied
        run.shards[0].loop.stop()
        run.threads[1].join(10.0)
        halted = heard(watcher, "halted")
        assert "shard 1 (pid " in halted.text
        assert " on " in halted.text
        assert "held a part of the parameters, is lost" in halted.text
        for worker in workers:
            assert isinstance(worker.data.receive(5.0), messages.Stop)
            worker.leave()
        watcher.close()


@pytest.mark.parametrize("complete", [True, False])
def test_a_worker_that_ends_leaves_the_others_whole(start: Start, complete: bool) -> None:
    with start(2) as run:
        near, far = crew(run, (False, True), VALUES, "async", together)
        watcher = observe(run.near, 2)
        for worker in (near, far):
            worker.open_pass(8)
        far.ask(messages.Ready())
        if complete:
            assert far.push(VALUES).applied
        else:  # the server has its part and the push, the shard nothing: it counts nowhere
            far.fill(VALUES)
            far.way._own.post(100)
            far.data.send(far.pushing(VALUES))
        far.close()
        died = heard(watcher, "died")
        assert f"at clock {int(complete)}" in died.text
        assert step(near).version == 1 + complete
        assert step(near).version == 2 + complete
        near.leave()
        watcher.close()


LIES: dict[str, tuple[Callable[[Any], object], str]] = {
    "a piece of another size": (lambda c: c.post(0, memoryview(b"x" * 7)), "has 7 bytes"),
    "a piece out of turn": (lambda c: c.post(1, memoryview(b"x" * 192)), "0 have come before"),
    "a push without its pieces": (lambda c: c.send(Laid(whole=True)), "a push of 0 of"),
    "an order": (
        lambda c: c.send(messages.Ready()),
        "unexpected Ready",
    ),
    "a huge tensor": (lambda c: c._socket.sendall(header(Kind.TENSOR, 2**50)), "the model's has"),
    "no frame": (lambda c: c._socket.sendall(b"GET / HTTP/1.1\r\n\r\n"), "no frames"),
    "a truncated frame": (
        lambda c: (
            c._socket.sendall(header(Kind.MESSAGE, 100) + b"abc"),
            c._socket.shutdown(socket.SHUT_WR),
        ),
        "in the middle of a frame",
    ),
}


def test_who_lies_to_a_shard_is_dropped_and_the_others_go_on(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    with start(2) as run:
        near, *liars = crew(run, (False, *[True] * len(LIES)), VALUES, "async", together)
        watcher = observe(run.near, 1 + len(LIES))
        near.open_pass(20)
        for liar, (act, words) in zip(liars, LIES.values(), strict=True):
            (channel,) = liar.reached
            act(channel)
            assert hung_up(channel)
            assert heard(watcher, "died").rank == liar.rank
            liar.close()
            assert step(near).applied
            lines = [one for one in capsys.readouterr().err.splitlines() if words in one]
            assert len(lines) == 1, words
            assert f"rank {liar.rank} " in lines[0]
        near.leave()
        watcher.close()


def test_strangers_at_a_shards_port(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    with start(2) as run:
        near, far = crew(run, (False, True), VALUES, "async", together)
        address = run.server._far.all[0].place.address
        remote = remote_from(address)
        assert remote is not None
        other = run.key.with_name("other")
        make_key(other)
        for key in (other, None):
            with pytest.raises(UsageError, match="has another"):
                reach(address, key)
        for first in (b"GET / HTTP/1.1\r\n\r\n", header(Kind.MESSAGE, 5) + b"Hello"):
            with socket.create_connection((remote.host, remote.port)) as stranger:
                stranger.sendall(first)
                with suppress(ConnectionResetError):
                    while stranger.recv(1000):
                        pass
        order = SetUp(number=1, generation=9, owners=[], opening=far.opening(VALUES, "async"))
        for message in (far.pushing(VALUES), order):
            friend = reach(address, run.key)
            friend.send(message)
            assert hung_up(friend)
            friend.close()
        refusals = {"data": "is here already", "control": "no business", "hub": "no business"}
        for role, words in refusals.items():
            friend = reach(address, run.key)
            friend.send(messages.Hello(role=role, **far.hello))  # type: ignore[arg-type]
            refused = friend.receive(5.0)
            assert isinstance(refused, messages.Stop)
            assert words in refused.text
            friend.close()
        near.open_pass(2)
        assert step(near).applied
        end([near, far])
    assert "before Hello" in capsys.readouterr().err


def test_the_next_generation_has_shards_of_its_own(start: Start) -> None:
    with start(2) as run:
        run.server.hub._has_parent = True  # as under a launcher: scripts may make further Workers
        for strategy in ("async", "sync:server", "async"):
            workers = crew(run, (True, False), VALUES, strategy, together)
            together([lambda w=w: w.open_pass(2) for w in workers])
            assert all(one.applied for one in together([lambda w=w: step(w) for w in workers]))
            end(workers)
        run.server.loop.stop()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compress": "topk:0.01"}, "compress='topk:0.01'"),
        ({"groups": [[0], [1]]}, "strategy='async'"),
        ({"serving_s": 0.1}, "an emulated server's capacity"),
    ],
)
def test_what_is_not_built_for_several_shards_is_refused(
    start: Start, options: dict[str, Any], words: str
) -> None:
    with start(2) as run:
        from server.stand_in import StandIn

        workers = [StandIn(run.near, rank, 2) for rank in range(2)]
        said = together([lambda w=w: w.ask(w.opening(VALUES, "async", **options)) for w in workers])
        for stop in said:
            assert isinstance(stop, messages.Stop)
            assert f"--shards=2 and {words} cannot work together" in stop.text
        end(workers)
