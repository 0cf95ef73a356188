"""Gradients to, and parameters from, several shards: each has some of the parameters whole.

The server is shard 0, and the one that is asked. Bytes go to each shard over a connection of its own, side
by side (none to one that shares memory with this worker); a window's are followed by ``Laid``, and each
reply of the server's that speaks of parameters is followed by one ``Given`` of every other shard. Decides
nothing: whose each parameter is comes with the server's first reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from select import POLLIN, poll
from typing import Any

import torch

from paceline.gradients.layout import FlatLayout
from paceline.gradients.parts import Piece, part_of, places_of, pushed_pieces, runs_of
from paceline.gradients.precision.layouts import gradients_of
from paceline.transport.channel import Channel, ChannelClosedError
from paceline.transport.frame_channel import FrameChannel
from paceline.transport.framing import FrameError
from paceline.transport.messages import GLANCE, WINDOW, Decided, Message, Opened, Push, Stop
from paceline.transport.shard_messages import Enter, Entered, Given, Laid, place_and_index
from paceline.worker.payload_ways import MakeReceived, Parameters, ReceivedParameters, bytes_of
from paceline.worker.session import Session
from paceline.worker.shared_gradients import Gradients
from paceline.worker.shared_parameters import SharedParameters

LOOK_UP_EVERY_S = 0.5
"""How often a wait for a shard is broken off to see whether this worker has to stop."""


class Link:
    """To one shard, over ``channel``; None: to the server, whose the session is. ``pieces``: what it is sent
    of ``memory``, nothing where it sees it (``far`` is None then). ``parameters``: those it has, ``given``:
    what it called them last."""

    def __init__(
        self,
        session: Session,
        channel: Channel | FrameChannel | None,
        memory: torch.Tensor,
        pieces: Sequence[Piece],
    ) -> None:
        self.channel = channel
        self.far = channel if isinstance(channel, FrameChannel) else None
        if channel is None:
            self.far = session.frames
        whole = bytes_of(memory)
        self._session = session
        self._pieces = [(one.bucket, whole[one.start_bytes : one.stop_bytes]) for one in pieces]
        self._posted = 0
        self.parameters: Parameters
        self.given = -1

    def ask(self, request: Message) -> Any:
        """The shard's reply. Raises as :meth:`Session.request` does."""
        if self.channel is None:
            return self._session.request(request)
        with _explained(self._session):
            self.channel.send(request)
            [reply] = heard(self._session, [self.channel])
        return reply

    def post(self, buckets: int) -> None:
        """Send what is in the first so many buckets, and was not sent."""
        while self.far and self._posted < len(self._pieces):
            bucket, memory = self._pieces[self._posted]
            if bucket >= buckets:
                break
            self.far.post(self._posted, memory)
            self._posted += 1

    def lay(self, *, whole: bool) -> None:
        """The window's gradients are on their way."""
        if self.far is not None:
            self.far.post_message(Laid(whole=whole))
        elif self.channel is not None:
            self.channel.send(Laid(whole=whole))

    def begin(self) -> None:
        """The next window begins: nothing of it is sent."""
        self._posted = 0


class AmongShards:
    """The way of a worker whose parameters are divided. ``own`` is the server's link, ``others`` the rest.
    ``early``: nobody changes buckets once they are full."""

    def __init__(
        self, session: Session, own: Link, others: Sequence[Link], *, buckets: int, early: bool
    ) -> None:
        self._session = session
        self._own = own
        self._others = others
        self._buckets = buckets
        self._early = early

    def filled(self, buckets: int) -> None:
        """In the window's last backward the first so many buckets are full."""
        if self._early:
            self._post(buckets)

    def push(self, push: Push) -> Decided:
        """Push the window's gradients; what was decided."""
        whole = push.weight != 0
        if whole:
            self._post(self._buckets)
        with _explained(self._session):
            for link in self._others:
                link.lay(whole=whole)
        for link in (self._own, *self._others):
            link.begin()
        decided: Decided = self.ask(push)
        return decided

    def ask(self, request: Message) -> Any:
        """The server's reply, which speaks of parameters; by then every shard's are here."""
        return self._session.exchange(request, self._hear)

    def _hear(self, server: Any) -> Any:
        """All at once: what one shard sends to everybody must not wait for what another does."""
        others = [link.channel for link in self._others]
        reply, *given = heard(self._session, [server, *others])
        for link, one in zip(self._others, given, strict=True):
            if isinstance(one, Given):
                link.given = one.parameters_fd
        return reply

    def _post(self, buckets: int) -> None:
        for link in (self._own, *self._others):
            link.post(buckets)


class DividedParameters:
    """The model's parameters, each shown by the link to its shard."""

    def __init__(self, own: Link, others: Sequence[Link]) -> None:
        self._own = own
        self._others = others

    def show(self, fd: int) -> None:
        self._own.parameters.show(fd)
        for link in self._others:
            link.parameters.show(link.given)

    @contextmanager
    def showing(self, fd: int) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self._own.parameters.showing(fd))
            for link in self._others:
                stack.enter_context(link.parameters.showing(link.given))
            yield

    def spread(self, broadcast: Callable[[torch.Tensor], None], fd: int) -> None:
        raise AssertionError("groups and several shards are refused together")

    def release(self) -> None:
        for link in (self._own, *self._others):
            link.parameters.release()


def enter(
    session: Session,
    opened: Opened,
    gradients: Gradients,
    parameters: Sequence[torch.nn.Parameter],
    layout: FlatLayout,
    *,
    bucket_bytes: int,
    early: bool,
    received: MakeReceived,
) -> tuple[AmongShards, DividedParameters]:
    """Enter at every shard that ``opened`` speaks of: the way from now on, and the parameters.

    Raises ServerLostError, or why this worker is to stop, if one of them cannot be reached.
    """
    channels = [session.reach(place) for place in opened.shards]
    links = []
    for number, channel in enumerate((None, *channels)):
        pieces = pushed_pieces(gradients_of(layout), opened.owners, number, bucket_bytes)
        link = Link(session, channel, gradients.region.memory, pieces)
        own = [parameters[index] for index in places_of(opened.owners, number)]
        part = part_of(layout, opened.owners, number)
        rooms = Rooms(received(own, part), runs_of(layout, opened.owners, number))
        links.append(_entered(link, gradients.region.fd, own, part, rooms))
    own_link, *others = links
    way = AmongShards(session, own_link, others, buckets=len(gradients.vectors), early=early)
    return way, DividedParameters(own_link, others)


def heard(session: Session, channels: Sequence[Any]) -> list[Any]:
    """The next message on each of ``channels``, read side by side; nothing more after a Stop.

    Raises ChannelClosedError, FrameError, and why this worker has to stop.
    """
    found = {channel.fileno(): channel.take() for channel in channels}
    at = {channel.fileno(): channel for channel in channels}
    waiting = poll()
    for fd in (fd for fd, message in found.items() if message is None):
        waiting.register(fd, POLLIN)
    while None in found.values() and not any(isinstance(one, Stop) for one in found.values()):
        ready = waiting.poll(LOOK_UP_EVERY_S * 1000)
        if not ready:
            session.check()
        for fd, _ in ready:
            found[fd] = at[fd].read()
            if found[fd] is not None:
                waiting.unregister(fd)
    return [found[channel.fileno()] for channel in channels]


def _entered(
    link: Link,
    region_fd: int,
    parameters: Sequence[torch.nn.Parameter],
    part: FlatLayout,
    rooms: Rooms,
) -> Link:
    """``link`` with the first version in its parameters, which are those of ``part``."""
    if link.far is not None:
        link.far.receive_into(rooms.room)
    reply: Entered = link.ask(Enter(region_fd=region_fd))
    link.given = reply.parameters_fd
    if link.far is not None:
        link.parameters = rooms.received
    else:
        link.parameters = SharedParameters(parameters, part, reply.server_pid)
    link.parameters.show(link.given)
    return link


class Rooms:
    """Where a shard's frames go: each run of its bytes has its own place in ``received``."""

    def __init__(self, received: ReceivedParameters, runs: Sequence[Piece]) -> None:
        self.received = received
        self._runs = runs

    def room(self, number: int, length: int) -> memoryview:
        """The bytes for a frame. Raises FrameError for what is none of the shard's."""
        place, index = place_and_index(number)
        run = self._runs[index] if index < len(self._runs) else Piece(start_bytes=0, stop_bytes=0)
        if place not in (WINDOW, GLANCE) or length != run.stop_bytes - run.start_bytes:
            raise FrameError(f"{length} bytes as piece {index} of {len(self._runs)}, place {place}")
        return self.received.memory(place)[run.start_bytes : run.stop_bytes]


@contextmanager
def _explained(session: Session) -> Iterator[None]:
    """A broken connection is raised as what it means."""
    try:
        yield
    except (ChannelClosedError, FrameError) as error:
        raise session.explain(error) from error
