"""A push as bytes: every parameter's gradient encoded, in order; and back. Knows no messages.

Both sides know how long everything has to be: the header says which update it is for and how much of
the warm-up is over, all else follows from the parameters' shapes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from paceline import payloads
from paceline.compression import Compression
from paceline.gradients.codecs.choosing import Choice, Codecs
from paceline.gradients.codecs.codec import (
    Codec,
    ParcelError,
    as_bytes,
    check_finite,
    cut,
    flat,
    padded,
)
from paceline.gradients.codecs.encoding import encode, squares_of
from paceline.gradients.codecs.feedback import Feedback
from paceline.gradients.layout import Slot

_HEADER = struct.Struct("<qd")
assert _HEADER.size == payloads.HEADER_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """``turn``: number of the update; ``share``: of the warm-up that is over; ``unit``: a gradient as
    it lies in memory, times this, is weight times gradient."""

    turn: int
    share: float
    unit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Packed:
    """``parcel``: None if everything is sent whole. ``squares``: the sum of squares of what is sent;
    ``bad``: the first parameter of which something is not finite after all."""

    parcel: torch.Tensor | None
    squares: float
    bad: int | None


class Packer:
    """Encodes this worker's gradients, of the parameters in ``slots``."""

    def __init__(self, slots: Sequence[Slot], codecs: Codecs, feedback: Feedback) -> None:
        self._slots = slots
        self._codecs = codecs
        self._feedback = feedback

    @torch.no_grad()
    def pack(self, gradients: Sequence[torch.Tensor], used: bytes, moment: Moment) -> Packed:
        """``gradients`` of the ``used`` parameters (one byte each) as bytes.

        They are corrected in place by what was withheld before, and hold what is withheld afterwards
        if there is a parcel. To be followed by :meth:`settle`.
        """
        choice = self._codecs.at(moment.share)
        pieces = [header(moment)]
        squares, bad = 0.0, None
        for place, gradient in enumerate(gradients):
            if not used[place]:
                continue
            self._feedback.correct(place, gradient, moment.unit)
            piece, square = self._encoded(place, gradient, choice[place], moment)
            pieces.append(padded(piece))
            squares += square
            if bad is None and math.isnan(square):
                bad = place
        coded = any(choice[place] is not None for place, one in enumerate(used) if one)
        return Packed(parcel=torch.cat(pieces) if coded else None, squares=squares, bad=bad)

    def settle(self, applied: bool) -> None:
        """What was packed last was applied, or leaves no trace."""
        self._feedback.settle(applied)
        self._codecs.settle(applied)

    def state(self) -> dict[str, dict[str, torch.Tensor]]:
        """For this worker's part of a checkpoint."""
        return {"residuals": self._feedback.residuals(), "starts": self._codecs.starts()}

    def _encoded(
        self, place: int, gradient: torch.Tensor, codec: Codec | None, moment: Moment
    ) -> tuple[torch.Tensor, float]:
        """Its bytes, and the sum of squares of what they stand for: NaN if something is not finite."""
        if codec is None:
            self._feedback.sent_whole(place)
            return as_bytes(flat(gradient)), squares_of(gradient)
        encoded = encode(codec, gradient, moment.turn)
        self._feedback.withhold(place, gradient, moment.unit)
        return encoded.piece, encoded.squares


class Parcels:
    """Parcels of what lies in ``slots``, taken apart. Trusts none of them."""

    def __init__(self, slots: Sequence[Slot], codecs: Codecs) -> None:
        self._slots = slots
        self._codecs = codecs

    def open(self, parcel: torch.Tensor, used: bytes) -> tuple[int, Choice, Sequence[torch.Tensor]]:
        """The turn, each parameter's codec, and its bytes: none where it is not ``used``.

        Raises ParcelError if the length is not right.
        """
        turn, choice = self._read_header(parcel)
        sizes = self._sizes(choice, used)
        if len(parcel) != sum(sizes) + _HEADER.size:
            raise ParcelError(f"{len(parcel)} bytes, expected {sum(sizes) + _HEADER.size}")
        return turn, choice, torch.split(parcel[_HEADER.size :], sizes)

    def _read_header(self, parcel: torch.Tensor) -> tuple[int, Choice]:
        if len(parcel) < _HEADER.size:
            raise ParcelError("no header")
        turn, share = _HEADER.unpack(bytes(parcel[: _HEADER.size].tolist()))
        if not 0 <= share <= 1 or turn < 0:
            raise ParcelError(f"turn {turn}, share {share}")
        return turn, self._codecs.at(share)

    def _sizes(self, choice: Choice, used: bytes) -> list[int]:
        return [
            _size(slot, codec) if one else 0
            for slot, codec, one in zip(self._slots, choice, used, strict=True)
        ]


class Unpacker:
    """Decodes pushes of workers that were told ``compression``. Trusts none of them."""

    def __init__(self, compression: Compression, slots: Sequence[Slot]) -> None:
        self._parcels = Parcels(slots, Codecs(compression, slots))

    @torch.no_grad()
    def unpack(self, data: bytes, out: Sequence[torch.Tensor], used: bytes) -> None:
        """Overwrite ``out`` with what ``data`` stands for; with zeros what is not ``used``.

        Raises ParcelError before anything is written if the length is not right.
        """
        if not data:
            raise ParcelError("no header")
        parcel = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        turn, choice, pieces = self._parcels.open(parcel, used)
        for place, (piece, codec, gradient) in enumerate(zip(pieces, choice, out, strict=True)):
            if not used[place]:
                gradient.zero_()
            elif codec is None:
                read_whole(piece, gradient)
            else:
                codec.decode(piece, gradient, turn)


def header(moment: Moment) -> torch.Tensor:
    """What a parcel begins with."""
    packed = bytearray(_HEADER.pack(moment.turn, moment.share))
    return torch.frombuffer(packed, dtype=torch.uint8)


def read_whole(piece: torch.Tensor, out: torch.Tensor) -> None:
    """Overwrite ``out`` with what ``piece`` holds of it as it is. Raises ParcelError if that is not finite."""
    values, _ = cut(piece, out.dtype, out.numel())
    check_finite(values)
    flat(out).copy_(values)


def _size(slot: Slot, codec: Codec | None) -> int:
    item_bytes = slot.dtype.itemsize
    whole = payloads.dense_bytes(slot.shape, item_bytes)
    own = whole if codec is None else codec.payload_bytes(slot.shape, item_bytes)
    return payloads.aligned(own)
