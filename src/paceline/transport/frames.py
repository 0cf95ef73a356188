"""Frames between hosts as a state machine without I/O: where the next bytes belong, what they make.

A frame is a header of 16 bytes (magic, version, kind, number, length) and ``length`` bytes. A message
takes memory only as its bytes arrive. A tensor takes none: its bytes go to where the reader's ``rooms``
says, which is asked before the first of them comes and refuses what the model has no place for.
Whoever reads asks for :attr:`FrameReader.room`, puts bytes there and says how many. This module knows
neither sockets nor models, nor what a message says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from paceline.transport.framing import FrameError

MAGIC = b"PACE"
FRAMES_VERSION = 1
MAX_HANDSHAKE_BYTES = 64
PIECE_BYTES = 64 * 2**10
_HEADER = struct.Struct("!4sBBHQ")
HEADER_BYTES = _HEADER.size


class Kind(IntEnum):
    """What a frame's bytes are."""

    HANDSHAKE = 1
    """A nonce or a proof (:mod:`paceline.transport.handshake`)."""
    MESSAGE = 2
    """A message (:mod:`paceline.transport.messages`)."""
    TENSOR = 3
    """Raw numbers, for the place that the header's number names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Came:
    """A whole frame. ``body``: its bytes; empty for a tensor, which lies where it was to go."""

    kind: Kind
    number: int
    body: bytes = b""


Rooms = Callable[[int, int], memoryview]
"""``rooms(number, length)``: the writable bytes, exactly so many, for a tensor. Raises FrameError."""


def header(kind: Kind, length_bytes: int, number: int = 0) -> bytes:
    """What comes before a frame's ``length_bytes`` bytes. ``number``: 0 to 65535."""
    return _HEADER.pack(MAGIC, FRAMES_VERSION, kind, number, length_bytes)


def no_rooms(number: int, length: int) -> memoryview:
    """Nobody may send tensors here."""
    raise FrameError(f"a tensor of {length} bytes, and none is expected here")


class FrameReader:
    """Frames as their bytes come. ``kinds``: those that are taken now; ``limit_bytes``: the longest
    message. Both may be changed between frames."""

    def __init__(
        self, *, kinds: frozenset[Kind], limit_bytes: int, rooms: Rooms = no_rooms
    ) -> None:
        self.kinds = kinds
        self.limit_bytes = limit_bytes
        self.rooms = rooms
        self._piece = memoryview(bytearray(PIECE_BYTES))
        self._begin()

    @property
    def between_frames(self) -> bool:
        """Whether the bytes so far are whole frames: only then may they end."""
        return self._kind is None and self._got == 0

    @property
    def room(self) -> memoryview:
        """Where the next bytes belong: at least one, and none of the next frame."""
        if self._kind is None:
            return self._piece[self._got : HEADER_BYTES]
        if self._tensor is not None:
            return self._tensor[self._got :]
        return self._piece[: min(PIECE_BYTES, self._length - self._got)]

    def wrote(self, count: int) -> Came | None:
        """``count`` bytes are in :attr:`room`. The frame that they complete, if they do.

        Raises :class:`FrameError` for what is no frame that is taken here; nothing after it can be.
        """
        if self._kind is not None and self._tensor is None:
            self._body += self._piece[:count]
        self._got += count
        if self._kind is None:
            if self._got < HEADER_BYTES:
                return None
            self._open()
        return self._complete() if self._got == self._length else None

    def _begin(self) -> None:
        self._kind: Kind | None = None
        self._number = 0
        self._length = -1
        self._got = 0
        self._body = bytearray()
        self._tensor: memoryview | None = None

    def _open(self) -> None:
        magic, version, kind, number, length = _HEADER.unpack(self._piece[:HEADER_BYTES])
        if magic != MAGIC:
            raise FrameError("the bytes are no frames of paceline's")
        if version != FRAMES_VERSION:
            raise FrameError(
                f"frames of version {version}; version {FRAMES_VERSION} is spoken here"
            )
        if kind not in self.kinds:
            raise FrameError(f"a frame of kind {kind}, which is not expected now")
        self._kind, self._number, self._length, self._got = Kind(kind), number, length, 0
        if self._kind is Kind.TENSOR:
            self._tensor = self.rooms(number, length)
            assert self._tensor.nbytes == length, (self._tensor.nbytes, length)
            return
        limit = MAX_HANDSHAKE_BYTES if self._kind is Kind.HANDSHAKE else self.limit_bytes
        if not 0 < length <= limit:
            raise FrameError(f"a frame claims {length} bytes; 1 to {limit} are taken")

    def _complete(self) -> Came:
        assert self._kind is not None
        came = Came(kind=self._kind, number=self._number, body=bytes(self._body))
        self._begin()
        return came
