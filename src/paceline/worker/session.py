"""A worker's membership of its run: two connections to the server and one thread that beats.

Planes talk to the server through it (``request``), ranks agree through it (``gather``), and
whatever waits does so where a Stop from the server can end the wait. It knows nothing of tensors.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from paceline.errors import PacelineError, PeerLostError, ServerLostError
from paceline.launch.context import Launch
from paceline.launch.hosts import identity
from paceline.launch.rendezvous import Rendezvous, find_server
from paceline.transport.addresses import remote_from
from paceline.transport.channel import Channel, ChannelClosedError
from paceline.transport.frame_channel import FrameChannel, reach
from paceline.transport.framing import FrameError
from paceline.transport.messages import (
    PROTOCOL_VERSION,
    AbortKind,
    Bye,
    Gather,
    HandedIn,
    HandIn,
    Hello,
    Message,
    ShardPlace,
    Stop,
    Welcome,
)
from paceline.worker.halt import Halt, stop_error
from paceline.worker.heartbeat import Heartbeat

TRIES = 4
AGAIN_AFTER_S = 0.5
"""A server that strangers beset may hang up on whoever is slow to introduce himself."""
SETTLE_S = 5.0
"""How long a broken connection waits for the server to say which rank is to blame."""


class Wire(Protocol):
    """A connection to the server: a :class:`Channel`, or what stands for one within one process."""

    def send(self, message: Message) -> None: ...

    def receive(self) -> Any: ...

    def close(self) -> None: ...

    def forget(self) -> None: ...


class Beats(Protocol):
    """Signs of life and of the end: a :class:`Heartbeat`, or what stands for one."""

    halt: Halt
    phase: Callable[[], tuple[str, float]]

    def abort(self, text: str, kind: AbortKind = "peer-failed") -> None: ...

    def close(self) -> None: ...

    def forget(self) -> None: ...


class Session:
    """Membership of a run. Made by :meth:`connect`; used from the worker's main thread only."""

    def __init__(
        self, launch: Launch, rendezvous: Rendezvous, data: Wire, heartbeat: Beats
    ) -> None:
        self.rank = launch.rank
        self.world_size = launch.world_size
        self.shards = launch.shards
        self.rendezvous = rendezvous
        self._launch = launch
        self._shard_channels: list[Channel | FrameChannel] = []
        self._data = data
        self._heartbeat = heartbeat
        self._halt = heartbeat.halt
        self._closed = False
        self._awaiting = False
        forget = weakref.WeakMethod(self._forget)
        os.register_at_fork(after_in_child=lambda: _call(forget))

    @classmethod
    def connect(
        cls,
        launch: Launch,
        *,
        evict_after_s: float,
        on_beat: Callable[[], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> Session:
        """Join the run that ``launch`` describes. ``on_beat``: called every second and before the
        process is ended, from another thread.

        Raises ServerLostError if its server cannot be reached, UsageError if it refuses.
        """
        rendezvous = find_server(launch)
        address = rendezvous.address
        control = _call_on(address, launch, hello(launch, "control", evict_after_s))
        data = _call_on(address, launch, hello(launch, "data", evict_after_s))
        heartbeat = Heartbeat(
            control, launcher_pid=launch.launcher_pid, clock_s=clock_s, on_beat=on_beat
        )
        return cls(launch, rendezvous, data, heartbeat)

    def request(self, message: Message) -> Any:
        """The server's reply to ``message``.

        Raises PeerLostError, PeerFailedError, EvictedError or ServerLostError if it is to stop.
        """
        return self.exchange(message, lambda channel: channel.receive())

    def exchange(self, message: Message, receive: Callable[[Any], Any]) -> Any:
        """The same, where ``receive(channel)`` waits for the reply (and for more)."""
        self._halt.check()
        self._awaiting = True
        try:
            self._data.send(message)
            reply = receive(self._data)
        except (ChannelClosedError, FrameError) as error:
            raise self.explain(error) from error
        if isinstance(reply, Stop):
            self._halt.stop(reply)
            self._halt.check()
        self._awaiting = False
        return reply

    def tell(self, message: Message) -> None:
        """Send what needs no reply; that nobody hears it is for the next request to find out."""
        with contextlib.suppress(ChannelClosedError):
            self._data.send(message)

    def gather(self, tag: str, payload: bytes, ranks: Sequence[int] = ()) -> list[bytes]:
        """All live workers' payloads, or those of ``ranks``, in rank order. Each of them has to call it."""
        request = Gather(tag=tag, payload=payload, ranks=list(ranks))
        payloads: list[bytes] = self.request(request).payloads
        return payloads

    def hand_in(
        self, pass_id: int, number: int, part: bytes, *, together: bool
    ) -> dict[int, bytes] | None:
        """Hand in a part of a checkpoint: see :meth:`paceline.worker.plane.Plane.hand_in`."""
        handed: HandedIn = self.request(
            HandIn(pass_id=pass_id, number=number, together=together, part=part)
        )
        return dict(zip(handed.ranks, handed.parts, strict=True)) if handed.turn else None

    @property
    def frames(self) -> FrameChannel | None:
        """Where tensors travel if the server is on another host; None where memory is shared."""
        return self._data if isinstance(self._data, FrameChannel) else None

    def reach(self, place: ShardPlace) -> Channel | FrameChannel:
        """A connection of this worker's to a shard in another process, kept until the worker leaves.

        Raises ServerLostError if nobody answers there, UsageError if it refuses.
        """
        address = place.socket if place.host == identity() else place.address
        channel = _call_on(address, self._launch, hello(self._launch, "data", 0.0))
        self._shard_channels.append(channel)
        return channel

    def tell_phase(self, report: Callable[[], tuple[str, float]]) -> None:
        """Let every beat say what the main thread does: ``report()``, a phase and its age in seconds."""
        self._heartbeat.phase = report

    def check(self) -> None:
        """Raises if this worker has to stop."""
        self._halt.check()

    def explain(self, error: Exception) -> PacelineError:
        """What to raise for ``error``, a broken connection: the server's reason, if it gives one."""
        try:
            self._halt.settle(SETTLE_S)
        except PacelineError as reason:
            return reason
        if isinstance(error, (ChannelClosedError, FrameError)):
            self._halt.server_lost(str(error))
            return ServerLostError(f"The server of this run is gone: {error}")
        return PeerLostError(f"A connection between the workers broke: {error}")

    @property
    def stopped(self) -> bool:
        """Whether this worker has been told to stop."""
        return self._halt.text is not None

    @property
    def usable(self) -> bool:
        """Whether a request can be made: not once stopped or closed, nor after Ctrl-C inside one."""
        return not (self.stopped or self._closed or self._awaiting)

    def abort(self, text: str, kind: AbortKind = "peer-failed") -> None:
        """Stop all other workers with ``text``: this one has failed."""
        if not self._closed:
            self._heartbeat.abort(text, kind)

    def close(self, reason: Literal["finished", "departed"]) -> None:
        """Leave the run and end the heartbeat. Twice is once; a stopped run needs no farewell."""
        if self._closed:
            return
        farewell = self.usable
        self._closed = True
        try:
            if farewell:
                self.request(Bye(reason=reason))
        finally:
            self._heartbeat.close()
            self._data.close()
            for channel in self._shard_channels:
                channel.close()
            self.rendezvous.close()

    def _forget(self) -> None:
        """In a forked child (a DataLoader's): it must not keep this worker's connections open."""
        if not self._closed:
            self._closed = True
            self._heartbeat.forget()
            self._data.forget()
            for channel in self._shard_channels:
                channel.forget()


def hello(launch: Launch, role: Literal["control", "data"], evict_after_s: float) -> Hello:
    """How the worker of ``launch`` introduces itself on a connection."""
    return Hello(
        protocol=PROTOCOL_VERSION, role=role, rank=launch.rank, world_size=launch.world_size,
        pid=os.getpid(), host=socket.gethostname(), evict_after_s=evict_after_s,
    )  # fmt: skip


def _call_on(address: str, launch: Launch, introduction: Hello) -> Channel | FrameChannel:
    tries = TRIES if remote_from(address) else 1
    for left in reversed(range(tries)):
        try:
            channel = reach(address, launch.key)
            introduce(channel, introduction)
        except (ChannelClosedError, FrameError) as error:
            if not left:
                raise ServerLostError(f"No server answers at {address}: {error}") from error
            time.sleep(AGAIN_AFTER_S)
        else:
            return channel
    raise AssertionError("the last try returns or raises")


def introduce(wire: Wire, introduction: Hello) -> None:
    """Say who calls. Raises what the server's refusal says, ChannelClosedError if nobody hears."""
    wire.send(introduction)
    reply = wire.receive()
    if isinstance(reply, Stop):
        wire.close()
        raise stop_error(reply)
    assert isinstance(reply, Welcome), reply


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    bound = method()
    if bound is not None:
        bound()
