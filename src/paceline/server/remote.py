"""The server's end of a connection from another host: frames, of whoever has proved to have the key.

Never blocks. Whoever sends what is no frame, more than the model has room for, or what nobody may
say now, is hung up on with a line in the log; the others notice nothing. What messages mean is for
the hub; which tensors belong to them for :mod:`paceline.server.parcels`.
"""

from __future__ import annotations

import secrets
import socket
from collections import deque
from collections.abc import Callable

from paceline.server.connection import Line, log
from paceline.server.loop import READ, WRITE, Loop
from paceline.server.parcels import Intake, Outgo
from paceline.transport import channel, messages
from paceline.transport.frames import Came, FrameReader, Kind, header
from paceline.transport.framing import FrameError
from paceline.transport.handshake import NONCE_BYTES, ServersHandshake
from paceline.transport.messages import Abort, Decided, Stop
from paceline.transport.shard_messages import Given
from paceline.transport.sockets import tune

INTRODUCED_WITHIN_S = 10.0
MOST_STRANGERS = 64
_TURN_BYTES = 2**20
_SENDS_A_TURN = 16


class RemoteConnection:
    """Messages in, messages out, as :class:`paceline.server.connection.Line` says.

    ``on_end(self)``: it has ended, and not by :meth:`close`.
    """

    remote = True

    def __init__(
        self,
        raw: socket.socket,
        address: str,
        loop: Loop,
        *,
        key: bytes,
        on_message: Callable[[Line, object], None],
        on_end: Callable[[Line], None],
    ) -> None:
        raw.setblocking(False)
        tune(raw)
        self.peer = f"a newcomer at {address}"
        self.open = True
        self.trusted = False
        self._socket = raw
        self._address = address
        self._loop = loop
        self._on_message = on_message
        self._on_end = on_end
        self._handshake = ServersHandshake(key=key, nonce=secrets.token_bytes(NONCE_BYTES))
        self._reader = FrameReader(
            kinds=frozenset({Kind.HANDSHAKE}), limit_bytes=messages.MAX_HELLO_BYTES
        )
        self._outgoing: deque[tuple[Kind, memoryview]] = deque()
        self._intake: Intake | None = None
        self._outgo: Outgo | None = None
        self._source = loop.add(raw.fileno(), self._on_ready, urgent=True)
        loop.call_at(loop.clock_s() + INTRODUCED_WITHIN_S, self._expect_introduction)

    def trust(self, peer: str, *, urgent: bool) -> None:
        """A proper Hello came: longer messages are taken, and served as ``urgent`` or in turn."""
        self.peer = f"{peer}, at {self._address}"
        self.trusted = True
        self._source.urgent = urgent
        self._reader.limit_bytes = messages.MAX_MESSAGE_BYTES

    def carry(self, intake: Intake, outgo: Outgo) -> None:
        """From now on gradients come in and parameters go out here."""
        self._intake, self._outgo = intake, outgo
        self._reader.rooms = intake.room
        self._reader.kinds = frozenset({Kind.MESSAGE, Kind.TENSOR})

    def send(self, message: messages.Message) -> None:
        """Send now what the socket takes and the rest when it can; nothing if it is closed."""
        if not self.open:
            return
        if isinstance(message, Stop) and self._sends_a_tensor():
            self.close()  # the tensor's memory may be written to from now on; control says Stop, too
            return
        for number, memory in () if self._outgo is None else self._outgo.before(message):
            self._queue(Kind.TENSOR, memory, number)
        if self._intake is not None and isinstance(message, Decided | Given):
            self._intake.answered()
        self._queue(Kind.MESSAGE, memoryview(messages.encode(message)))
        self._flush()

    def turn_away(self, why: str) -> None:
        """Hang up on somebody who is nobody yet, with a line in the log."""
        self._end(why)

    def close(self) -> None:
        """Hang up."""
        if self.open:
            self.open = False
            self._loop.remove(self._source)
            self._socket.close()
            self._outgoing.clear()
            self._intake = self._outgo = None

    # ----------------------------------------------------------------------------------- coming

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        taken = 0
        while events & READ and self.open and taken < _TURN_BYTES and (count := self.read()):
            taken += count

    def read(self) -> int:
        """Read once and hand over the frame that is complete, if one is; 0 if nothing was there."""
        try:
            count = self._socket.recv_into(self._reader.room)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._end(str(error))
            return 0
        if count == 0:
            self._end("" if self._reader.between_frames else "it ended in the middle of a frame")
            return 0
        try:
            if (came := self._reader.wrote(count)) is not None:
                self._take(came)
        except FrameError as error:
            self._end(str(error))
        return count

    def _take(self, came: Came) -> None:
        if came.kind is Kind.HANDSHAKE:
            self._shake(came.body)
        elif came.kind is Kind.TENSOR:
            assert self._intake is not None
            self._intake.took()
        else:
            self._hear(channel.unpack(came.body))

    def _shake(self, said: bytes) -> None:
        answer = self._handshake.hear(said)
        if answer is not None:
            self._queue(Kind.HANDSHAKE, memoryview(answer))
            self._flush()
        elif self._handshake.done:
            self._reader.kinds = frozenset({Kind.MESSAGE})

    def _hear(self, message: object) -> None:
        if self._sends_a_tensor() and not isinstance(message, Abort):
            raise FrameError(f"{type(message).__name__} before the last answer was read")
        if self._intake is not None:
            self._intake.check(message)
        self._on_message(self, message)

    def _expect_introduction(self) -> None:
        if self.open and not self.trusted:
            self._end(f"no introduction within {INTRODUCED_WITHIN_S:g} s")

    def _end(self, why: str) -> None:
        """The peer is gone, or not to be listened to any more."""
        if not self.open:
            return
        if not self.trusted and not self._handshake.done:
            why = why or "it hung up before it had proved that it has the key"
        if why:
            log(f"connection to {self.peer} closed: {why}")
        self.close()
        self._on_end(self)

    # ------------------------------------------------------------------------------------ going

    def _queue(self, kind: Kind, body: memoryview, number: int = 0) -> None:
        self._outgoing.append((kind, memoryview(header(kind, body.nbytes, number))))
        if body.nbytes:
            self._outgoing.append((kind, body))

    def _sends_a_tensor(self) -> bool:
        return any(kind is Kind.TENSOR for kind, _ in self._outgoing)

    def _flush(self) -> None:
        for _ in range(_SENDS_A_TURN):
            if not self._outgoing or not self._send_some():
                break
        if self.open:
            self._loop.expect(self._source, READ | WRITE if self._outgoing else READ)

    def _send_some(self) -> bool:
        """Send what the socket takes now; whether it may take more."""
        kind, body = self._outgoing.popleft()
        try:
            sent = self._socket.send(body)
        except BlockingIOError:
            sent = 0
        except OSError:  # nobody reads any more; what was sent before is still to be read
            self._outgoing.clear()
            return False
        if sent < body.nbytes:
            self._outgoing.appendleft((kind, body[sent:]))
        return sent > 0


class Gate:
    """Lets other hosts in at ``listener``. ``admit``: where their connections are kept."""

    def __init__(
        self,
        listener: socket.socket,
        loop: Loop,
        *,
        key: bytes,
        on_message: Callable[[Line, object], None],
        on_end: Callable[[Line], None],
        admit: Callable[[Line], None],
    ) -> None:
        self._listener = listener
        self._loop = loop
        self._key = key
        self._on_message = on_message
        self._on_end = on_end
        self._admit = admit
        self._strangers: list[RemoteConnection] = []
        loop.add(listener.fileno(), self._accept, urgent=True)

    def close(self) -> None:
        """Let nobody in any more."""
        self._listener.close()

    def _accept(self, _events: int) -> None:
        try:
            raw, address = self._listener.accept()
        except OSError:  # it hung up before it was let in
            return
        name = f"{address[0]}:{address[1]}"
        self._strangers = [one for one in self._strangers if one.open and not one.trusted]
        if len(self._strangers) >= MOST_STRANGERS:
            self._strangers.pop(0).turn_away("others want to come in, and it says nothing")
        line = RemoteConnection(
            raw, name, self._loop,
            key=self._key, on_message=self._on_message, on_end=self._on_end,
        )  # fmt: skip
        self._strangers.append(line)
        self._admit(line)
