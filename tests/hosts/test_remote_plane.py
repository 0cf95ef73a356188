"""The server plane with workers on other hosts (the loopback, threads): the same bits, and strangers,
liars and the dead harm nobody else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
import torch

from hosts.conftest import Places
from hosts.remote_stand_in import RemoteStandIn
from paceline.errors import UsageError
from paceline.transport import messages
from paceline.transport.channel import ChannelClosedError
from paceline.transport.frame_channel import call, reach
from paceline.transport.frames import Kind, header
from paceline.transport.keys import make_key
from server.stand_in import StandIn, observe

VALUES = [torch.arange(6.0).reshape(2, 3), torch.ones(40), torch.zeros(5, 4)]


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What the calls return that are made at once: each waits for the others."""
    answers: list[Any] = [None] * len(calls)

    def run(place: int) -> None:
        answers[place] = calls[place]()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    return answers


def crew(places: Places, far: Sequence[bool], strategy: str, **options: Any) -> list[StandIn]:
    """Opened workers; those that are ``far`` are on another host."""
    workers = [
        RemoteStandIn(places.far, rank, len(far), key=places.key, **options)
        if one
        else StandIn(places.near, rank, len(far), **options)
        for rank, one in enumerate(far)
    ]
    together([lambda w=w: w.ask(w.opening(VALUES, strategy)) for w in workers])
    return workers


def step(workers: Sequence[StandIn], factor: float) -> list[messages.Decided]:
    """One window of each, at once; gradients differ by rank."""
    together([lambda w=w: w.ask(messages.Ready()) for w in workers])
    return together(
        [lambda w=w: w.push([value + factor * (w.rank + 1) for value in VALUES]) for w in workers]
    )


def end(workers: Sequence[StandIn]) -> None:
    together([worker.leave for worker in workers])


@pytest.mark.parametrize("far", [(False, True), (True, False), (True, True, True)])
def test_wherever_workers_are_the_bits_are_the_same(places: Places, far: tuple[bool, ...]) -> None:
    workers = crew(places, far, "sync:server")
    together([lambda w=w: w.open_pass(3 * len(far)) for w in workers])
    expected = [value.clone() for value in VALUES]
    for factor in (0.1, 0.2, 0.3):
        decided = step(workers, factor)
        assert all(one.applied for one in decided)
        for index, value in enumerate(VALUES):
            total = value + factor
            for rank in range(1, len(far)):
                total = total + (value + factor * (rank + 1))
            expected[index].add_(total / len(far), alpha=-0.1)
    for worker in workers:
        for mine, value in zip(worker.parameters, expected, strict=True):
            assert torch.equal(mine, value)
    end(workers)


def test_a_version_that_the_worker_has_is_not_sent_again(places: Places) -> None:
    (near, far) = crew(places, (False, True), "async")
    assert isinstance(far, RemoteStandIn)
    far.open_pass(4)
    far.received[messages.WINDOW].fill_(9)
    assert isinstance(far.ask(messages.Ready()), messages.Started)
    assert bool((far.received[messages.WINDOW] == 9).all())  # the version of Opened still
    latest = far.ask(messages.Read())
    assert isinstance(latest, messages.Latest)
    assert far.layout.views(far.received[messages.GLANCE])[1].equal(VALUES[1])
    assert far.push(VALUES).applied
    assert not bool((far.received[messages.WINDOW] == 9).all())
    end([near, far])


# ------------------------------------------------------------------------- who harms only himself


def training_goes_on(near: StandIn) -> None:
    assert isinstance(near.ask(messages.Ready()), messages.Started)
    assert near.push(VALUES).applied


def hung_up(channel: Any) -> bool:
    """Whether the server hangs up (and says nothing but Stop before)."""
    try:
        while True:
            said = channel.receive(5.0)
            assert isinstance(said, messages.Stop), said
    except ChannelClosedError:
        return True


def a_whole_tensor(worker: RemoteStandIn) -> None:
    worker.data.post(0, worker.buckets()[0])
    worker.data.post(0, worker.buckets()[0])


LIES: dict[str, tuple[Callable[[RemoteStandIn], object], str]] = {
    "a bucket of another size": (lambda w: w.data.post(0, memoryview(b"x" * 7)), "has 7 bytes"),
    "a bucket out of turn": (lambda w: w.data.post(1, w.buckets()[1]), "0 have come before"),
    "a bucket twice": (a_whole_tensor, "1 have come before"),
    "a huge bucket": (
        lambda w: w.data._socket.sendall(header(Kind.TENSOR, 2**50)),
        "the model's has",
    ),
    "a push without its buckets": (
        lambda w: w.data.send(w.pushing(VALUES)),
        "a push of 0 of 3 buckets",
    ),
    "buckets filled that are not": (
        lambda w: w.data.post_message(messages.Filled(buckets=2)),
        "2 buckets filled, and 0 have come",
    ),
    "a message that is none": (
        lambda w: w.data._socket.sendall(header(Kind.MESSAGE, 3) + b"abc"),
        "holds no message",
    ),
    "an oversized message": (
        lambda w: w.data._socket.sendall(header(Kind.MESSAGE, 2**40)),
        "claims 1099511627776 bytes",
    ),
    "no frame": (lambda w: w.data._socket.sendall(b"GET / HTTP/1.1\r\n\r\n"), "no frames"),
    "a truncated frame": (
        lambda w: (
            w.data._socket.sendall(header(Kind.MESSAGE, 100) + b"abc"),
            w.data._socket.shutdown(socket.SHUT_WR),
        ),
        "in the middle of a frame",
    ),
}


def test_who_breaks_the_protocol_is_dropped_with_a_line_and_the_others_go_on(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    near, *liars = crew(places, (False, *[True] * len(LIES)), "async")
    watcher = observe(places.near, 1 + len(LIES))
    near.open_pass(1 + len(LIES))
    for liar, (act, words) in zip(liars, LIES.values(), strict=True):
        assert isinstance(liar, RemoteStandIn)
        act(liar)
        assert hung_up(liar.data)
        liar.close()
        died = heard(watcher, "died")
        assert died.rank == liar.rank
        assert "on here" in died.text
        training_goes_on(near)
        (line,) = [one for one in capsys.readouterr().err.splitlines() if "closed:" in one]
        assert f"rank {liar.rank} " in line
        assert words in line
    training_goes_on(near)
    near.leave()
    watcher.close()


def heard(watcher: Any, kind: str) -> messages.Notice:
    """The server's next notice of that kind."""
    while True:
        said = watcher.receive(5.0)
        if isinstance(said, messages.Notice) and said.kind == kind:
            return said


def test_only_who_has_the_key_is_let_in(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    other = places.key.with_name("other")
    make_key(other)
    near, far = crew(places, (False, True), "async")
    with pytest.raises(UsageError, match=r"the server at tcp.*has another"):
        reach(places.far, other)
    with pytest.raises(UsageError, match="has another"):
        reach(places.far, None)  # the loopback needs none, but this server has one
    for first in (
        b"GET / HTTP/1.1\r\n\r\n",
        header(Kind.HANDSHAKE, 32) + b"n" * 32 + header(Kind.HANDSHAKE, 32) + b"p" * 32,
        header(Kind.MESSAGE, 5) + b"Hello",
        header(Kind.HANDSHAKE, 2**40),
    ):
        with socket.create_connection(("127.0.0.1", places.port)) as stranger:
            stranger.sendall(first)
            stranger.settimeout(5.0)
            with suppress(ConnectionResetError):
                while stranger.recv(1000):
                    pass
    near.open_pass(1)
    training_goes_on(near)
    end([near, far])
    lines = [one for one in capsys.readouterr().err.splitlines() if "closed:" in one]
    assert len(lines) == 6
    assert all("a newcomer at 127.0.0.1:" in one for one in lines)
    assert sum("before it had proved that it has the key" in one for one in lines) == 2
    assert sum("it has another key" in one for one in lines) == 1


def test_no_key_and_an_address_that_others_reach_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(UsageError, match="can be reached from other machines"):
        reach("tcp://192.0.2.1:29500", None)


def test_a_worker_elsewhere_that_ends_without_a_word_is_dead(places: Places) -> None:
    near, far = crew(places, (False, True), "async")
    watcher = observe(places.near, 2)
    far.open_pass(4)
    far.ask(messages.Ready())
    assert isinstance(far, RemoteStandIn)
    far.fill(VALUES)
    for number, bucket in enumerate(far.buckets()):
        far.data.post(number, bucket)
    far.data.send(far.pushing(VALUES))  # complete: it counts
    far.close()
    said = heard(watcher, "died")
    assert "rank 1 (pid" in said.text
    assert "at clock 1" in said.text
    near.open_pass(4)
    training_goes_on(near)
    near.leave()
    watcher.close()


def test_under_sync_its_death_stops_the_others_by_its_name(places: Places) -> None:
    near, far = crew(places, (False, True), "sync:server")
    together([lambda w=w: w.open_pass(4) for w in (near, far)])
    together([lambda w=w: w.ask(messages.Ready()) for w in (near, far)])
    far.close()
    stop = near.push(VALUES)
    assert isinstance(stop, messages.Stop)
    assert stop.rank == 1
    assert "on here" in stop.text
    near.leave()


def test_who_introduces_himself_too_slowly_is_hung_up_on(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.server.remote.INTRODUCED_WITHIN_S", 0.2)
    near, far = crew(places, (False, True), "async")
    slow = call_without_hello(places)
    began_s = time.monotonic()
    assert hung_up(slow)
    assert time.monotonic() - began_s < 3.0
    slow.close()
    end([near, far])


def call_without_hello(places: Places) -> Any:
    from paceline.transport.addresses import Remote

    return call(Remote(host="127.0.0.1", port=places.port), places.key)
