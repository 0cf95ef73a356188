"""The server's end of one connection: never blocks, whatever the other process does or is.

A peer that is stopped in the middle of a frame, or never reads, costs some buffer and nothing else.
Frames that are none, or a message nobody may send, close this connection with a line in the log.
What the messages mean is for the ``on_message`` callback.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable
from typing import Protocol

from paceline.server.loop import READ, WRITE, Loop
from paceline.server.parcels import Intake, Outgo
from paceline.transport import channel, messages
from paceline.transport.framing import FrameDecoder, FrameError


class Line(Protocol):
    """How the server reaches somebody: over a socket (:class:`Connection`, from another host
    :class:`paceline.server.remote.RemoteConnection`), or within one process."""

    open: bool
    trusted: bool
    remote: bool
    """Whether who is there shares no memory with this process: tensors have to be carried."""

    def trust(self, peer: str, *, urgent: bool) -> None:
        """A proper Hello came from ``peer``."""

    def send(self, message: messages.Message) -> None:
        """Send, without waiting for anybody."""

    def carry(self, intake: Intake, outgo: Outgo) -> None:
        """From now on gradients come in and parameters go out here, where that is needed."""

    def read(self) -> int:
        """Take in some of what was sent; 0 if nothing was there."""

    def close(self) -> None:
        """Hang up."""


class Connection:
    """Messages in, messages out. ``peer``: who it is, for the log. ``open``: still connected.

    ``trusted``: it has introduced itself with a proper Hello.
    """

    remote = False

    def __init__(
        self, raw: socket.socket, loop: Loop, on_message: Callable[[Line, object], None]
    ) -> None:
        raw.setblocking(False)
        self.peer = "a newcomer"
        self.open = True
        self.trusted = False
        self._socket = raw
        self._loop = loop
        self._on_message = on_message
        self._decoder = FrameDecoder(limit_bytes=messages.MAX_HELLO_BYTES)
        self._outgoing = bytearray()
        self._source = loop.add(raw.fileno(), self._on_ready, urgent=True)

    def trust(self, peer: str, *, urgent: bool) -> None:
        """A proper Hello came: longer frames are taken, and served as ``urgent`` or in turn."""
        self.peer = peer
        self.trusted = True
        self._source.urgent = urgent
        self._decoder.limit_bytes = messages.MAX_MESSAGE_BYTES

    def send(self, message: messages.Message) -> None:
        """Send now what the socket takes and the rest when it can; nothing if it is closed."""
        if not self.open:
            return
        data = channel.pack(message)
        sent = 0 if self._outgoing else self._send_some(data)
        if sent < len(data) and self.open:
            self._outgoing += memoryview(data)[sent:]
            self._loop.expect(self._source, READ | WRITE)

    def carry(self, intake: Intake, outgo: Outgo) -> None:
        """Nothing: both ends see the memory."""

    def close(self) -> None:
        """Hang up."""
        if self.open:
            self.open = False
            self._loop.remove(self._source)
            self._socket.close()

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & READ and self.open:
            self.read()

    def read(self) -> int:
        """Read once and hand over what is complete; 0 if nothing was there."""
        try:
            data = self._socket.recv(channel.RECEIVE_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.close()
            return 0
        self._decoder.feed(data)
        self._dispatch()
        return len(data)

    def _dispatch(self) -> None:
        try:
            while self.open and (body := self._decoder.next_frame()) is not None:
                self._on_message(self, channel.unpack(body))
        except FrameError as error:
            log(f"connection to {self.peer} closed: {error}")
            self.close()

    def _flush(self) -> None:
        del self._outgoing[: self._send_some(self._outgoing)]
        if not self._outgoing:
            self._loop.expect(self._source, READ)

    def _send_some(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            return 0


def drain(lines: Iterable[Line | None]) -> None:
    """Take in everything that a peer had sent on its ``lines`` (it is dead: no more will come)."""
    for line in lines:
        while line is not None and line.open and line.read():
            pass


def log(text: str) -> None:
    """A line of the server's log, which is its stderr."""
    print(f"paceline server: {text}", file=sys.stderr, flush=True)
