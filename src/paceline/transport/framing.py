"""Length-prefixed frames, decoded as the bytes come in: four bytes of length, then the message.

A frame takes memory only as its bytes arrive, whatever length it claims. This module knows neither
sockets nor what a frame holds.
"""

from __future__ import annotations

import struct

_LENGTH = struct.Struct("!I")


class FrameError(Exception):
    """The bytes are no frame of the protocol; nothing after them can be trusted."""


def frame(body: bytes) -> bytes:
    """``body`` with its length in front. Raises :class:`FrameError` from 4 GiB upwards."""
    if len(body) >= 2**32:
        raise FrameError(f"a message of {len(body)} bytes is too long for one frame (4 GiB)")
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Turns a stream of bytes into frames. ``limit_bytes``: the longest frame that is accepted."""

    def __init__(self, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what came in."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next whole frame's body, or None until more bytes come.

        Raises :class:`FrameError` if the frame claims to be longer than the limit.
        """
        buffer = self._buffer
        if len(buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(buffer)
        if length > self.limit_bytes:
            raise FrameError(f"a frame claims {length} bytes; at most {self.limit_bytes} are taken")
        stop = _LENGTH.size + length
        if len(buffer) < stop:
            return None
        body = bytes(memoryview(buffer)[_LENGTH.size : stop])
        del buffer[:stop]
        return body
