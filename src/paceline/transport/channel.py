"""Messages over a unix socket: the worker's blocking end, and the pieces the server's loop shares.

The socket lies in a directory that only its user can enter (mode 0700): on one host that is the
authentication. Frames are decoded by type, nothing is ever unpickled. This module knows messages
only as things to encode; what they mean is their sender's and receiver's business.
"""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Any

import msgspec

from paceline.errors import UsageError
from paceline.transport import messages
from paceline.transport.decoding import decode
from paceline.transport.framing import FrameDecoder, FrameError, frame

RECEIVE_BYTES = 64 * 2**10  # more would be a fresh mapping for each call
MAX_ADDRESS_BYTES = 107


class ChannelClosedError(EOFError):
    """The other end is gone: nothing more can be sent or received."""


def pack(message: messages.Message) -> bytes:
    """The message as one frame."""
    return frame(messages.encode(message))


def unpack(body: bytes) -> Any:
    """The message in a frame's body. Raises :class:`FrameError` if it holds none."""
    try:
        return decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"a frame of {len(body)} bytes holds no message: {error}") from None


class Channel:
    """One blocking connection, for at most one sending and one receiving thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._decoder = FrameDecoder(limit_bytes=messages.MAX_MESSAGE_BYTES)

    def fileno(self) -> int:
        """The socket's descriptor (to wait on; -1 once closed)."""
        return self._socket.fileno()

    def send(self, message: messages.Message) -> None:
        """Send all of ``message``. Raises :class:`ChannelClosedError` if nobody can receive it."""
        data = pack(message)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ChannelClosedError(str(error)) from None

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next message. Raises ChannelClosedError at the end, FrameError, or TimeoutError."""
        while True:
            body = self._decoder.next_frame()
            if body is not None:
                return unpack(body)
            self._decoder.feed(self._read(timeout_s))

    def take(self) -> Any:
        """A message that has come already; None if none has."""
        body = self._decoder.next_frame()
        return None if body is None else unpack(body)

    def read(self) -> Any:
        """Read once, what is there; the message that is complete then, if one is. Raises as ``receive``."""
        self._decoder.feed(self._read(None))
        return self.take()

    def close(self) -> None:
        """Close this process's end. A thread inside ``receive`` is woken with ChannelClosedError."""
        with contextlib.suppress(OSError):  # the other end may have been faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def forget(self) -> None:
        """Drop this process's copy of the descriptor (in a forked child): the other end sees nothing."""
        self._socket.close()

    def _read(self, timeout_s: float | None) -> bytes:
        try:
            if timeout_s is not None and not readable(self._socket, timeout_s):
                raise TimeoutError(f"no message for {timeout_s} s")
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:  # ValueError: closed by another thread
            raise ChannelClosedError(str(error)) from None
        if not data:
            raise ChannelClosedError("the other end closed the connection")
        return data


def readable(connection: socket.socket, timeout_s: float) -> bool:
    """Whether something can be read from ``connection`` within ``timeout_s``."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def connect(address: str, *, timeout_s: float = 10.0) -> Channel:
    """A channel to the server at ``address`` (a socket's path).

    Raises :class:`ChannelClosedError` if nobody listens there.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(_checked(address))
        connection.settimeout(None)
    except OSError as error:
        connection.close()
        raise ChannelClosedError(f"no server at {address}: {error}") from None
    return Channel(connection)


def listen(address: str) -> socket.socket:
    """A non-blocking listening socket at ``address``, whose directory should be private (0700)."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(_checked(address))
    listener.listen(512)
    listener.setblocking(False)
    return listener


def _checked(address: str) -> str:
    if len(address.encode()) > MAX_ADDRESS_BYTES:
        raise UsageError(
            f"socket={address!r}: expected a path of at most {MAX_ADDRESS_BYTES} bytes. "
            "Use a shorter temporary directory (TMPDIR)."
        )
    return address
