"""A worker's connection to a server on another host: messages and tensors, each as a frame.

Offers what :class:`paceline.transport.channel.Channel` does, and beside it carries tensors: those
posted are sent by a thread of the channel's while the caller goes on, in the order of posting, and
before the next message that is sent. Knows no windows and no models.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading
from pathlib import Path
from typing import Any

from paceline.errors import UsageError
from paceline.transport.addresses import Remote, remote_from
from paceline.transport.channel import Channel, ChannelClosedError, connect, readable, unpack
from paceline.transport.frames import Came, FrameReader, Kind, Rooms, header
from paceline.transport.framing import FrameError
from paceline.transport.handshake import NONCE_BYTES, CallersHandshake, WrongKeyError
from paceline.transport.keys import addresses_of, key_for
from paceline.transport.messages import MAX_MESSAGE_BYTES, Message, encode
from paceline.transport.sockets import connect_to

ANSWERS_WITHIN_S = 10.0
_SPOKEN = frozenset({Kind.MESSAGE, Kind.TENSOR})


class FrameChannel:
    """One blocking connection, for one thread that sends and one that receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = FrameReader(kinds=_SPOKEN, limit_bytes=MAX_MESSAGE_BYTES)
        self._outbox = _Outbox(connection)

    def fileno(self) -> int:
        """The socket's descriptor (to wait on; -1 once closed)."""
        return self._socket.fileno()

    def own_host(self) -> str:
        """This host's address, as the other end reaches it."""
        return str(self._socket.getsockname()[0]).split("%")[0]

    def receive_into(self, rooms: Rooms) -> None:
        """Where tensors go that come before a message."""
        self._reader.rooms = rooms

    def post(self, number: int, memory: memoryview) -> None:
        """Have a tensor sent; its ``memory`` must stay as it is until the next reply."""
        self._outbox.post(header(Kind.TENSOR, memory.nbytes, number), memory)

    def post_message(self, message: Message) -> None:
        """Have a message sent after the tensors posted so far, without waiting for that."""
        body = encode(message)
        self._outbox.post(header(Kind.MESSAGE, len(body)), memoryview(body))

    def send(self, message: Message) -> None:
        """Send all of ``message``. Raises :class:`ChannelClosedError` if nobody can receive it."""
        self._outbox.wait()
        body = encode(message)
        _send(self._socket, header(Kind.MESSAGE, len(body)) + body)

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next message; tensors before it are where they belong by then.

        Raises ChannelClosedError at the end, FrameError, or TimeoutError.
        """
        while True:
            came = self._next(timeout_s)
            if came.kind is Kind.MESSAGE:
                return unpack(came.body)

    def take(self) -> Any:
        """None: no more is ever read than what is asked for."""
        return None

    def read(self) -> Any:
        """Read once, what is there; the message that is complete then, if one is. Raises as ``receive``."""
        came = self._read(None)
        return unpack(came.body) if came is not None and came.kind is Kind.MESSAGE else None

    def close(self) -> None:
        """Close this process's end. A thread inside ``receive`` is woken with ChannelClosedError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._outbox.close()
        self._socket.close()

    def forget(self) -> None:
        """Drop this process's copy of the descriptor (in a forked child): the other end sees nothing."""
        self._socket.close()

    def _next(self, timeout_s: float | None) -> Came:
        came = None
        while came is None:
            came = self._read(timeout_s)
        return came

    def _read(self, timeout_s: float | None) -> Came | None:
        count = _read_into(self._socket, self._reader.room, timeout_s)
        if count == 0:
            whole = "" if self._reader.between_frames else ", in the middle of a frame"
            raise ChannelClosedError(f"the other end closed the connection{whole}")
        return self._reader.wrote(count)


class _Outbox:
    """Sends what is posted from a thread, which begins with the first of it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._queue: queue.SimpleQueue[tuple[bytes, memoryview] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._waiting = 0
        self._broken: ChannelClosedError | None = None

    def post(self, head: bytes, body: memoryview) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="paceline-sender", daemon=True)
            self._thread.start()
        with self._changed:
            self._waiting += 1
        self._queue.put((head, body))

    def wait(self) -> None:
        """Until everything is sent. Raises ChannelClosedError if it cannot be."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting == 0)
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """End the thread; the socket is shut down by now."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (posted := self._queue.get()) is not None:
            try:
                if self._broken is None:
                    for part in posted:
                        _send(self._socket, part)
            except ChannelClosedError as error:
                self._broken = error
            with self._changed:
                self._waiting -= 1
                self._changed.notify_all()


def reach(
    address: str, key_file: Path | None, *, timeout_s: float = ANSWERS_WITHIN_S
) -> Channel | FrameChannel:
    """A channel to the server at ``address``: a socket's path, or ``tcp://HOST:PORT``. Raises as
    :func:`call` does."""
    remote = remote_from(address)
    return connect(address) if remote is None else call(remote, key_file, timeout_s=timeout_s)


def call(
    remote: Remote, key_file: Path | None, *, timeout_s: float = ANSWERS_WITHIN_S
) -> FrameChannel:
    """A channel to the server at ``remote``, each end having proved to the other that it has the key.
    ``timeout_s``: to connect, and then for the other end to answer.

    Raises UsageError for the lack of a key or another one than the server's, and
    :class:`ChannelClosedError` if nobody listens there.
    """
    key = key_for(remote.host, key_file, addresses_of)
    try:
        connection = connect_to(remote, timeout_s=timeout_s)
    except OSError as error:
        raise ChannelClosedError(f"no server at {remote}: {error}") from None
    try:
        handshake = CallersHandshake(key=key, nonce=secrets.token_bytes(NONCE_BYTES))
        _shake(connection, handshake, timeout_s)
    except WrongKeyError:
        connection.close()
        raise UsageError(
            f"key={None if key_file is None else str(key_file)!r}: the server at {remote} has another. "
            "Give every host of the run the same file (`paceline key FILE` makes one)."
        ) from None
    except FrameError as error:
        connection.close()
        raise ChannelClosedError(f"{remote}: {error}") from None
    except BaseException:
        connection.close()
        raise
    return FrameChannel(connection)


def _shake(connection: socket.socket, handshake: CallersHandshake, timeout_s: float) -> None:
    reader = FrameReader(kinds=frozenset({Kind.HANDSHAKE}), limit_bytes=0)
    said: Came | None = None
    _send_handshake(connection, handshake.begin())
    try:
        while said is None:
            count = _read_into(connection, reader.room, timeout_s)
            if count == 0:
                raise FrameError("it hung up during the handshake")
            said = reader.wrote(count)
    except TimeoutError:
        raise FrameError(f"no handshake within {timeout_s:g} s") from None
    _send_handshake(connection, handshake.answer(said.body))


def _send_handshake(connection: socket.socket, body: bytes) -> None:
    _send(connection, header(Kind.HANDSHAKE, len(body)) + body)


def _send(connection: socket.socket, data: bytes | memoryview) -> None:
    try:
        connection.sendall(data)
    except OSError as error:
        raise ChannelClosedError(str(error)) from None


def _read_into(connection: socket.socket, room: memoryview, timeout_s: float | None) -> int:
    try:
        late = timeout_s is not None and not readable(connection, timeout_s)
        count = 0 if late else connection.recv_into(room)
    except (OSError, ValueError) as error:  # ValueError: closed by another thread
        raise ChannelClosedError(str(error)) from None
    if late:
        raise TimeoutError(f"no message for {timeout_s} s")
    return count
