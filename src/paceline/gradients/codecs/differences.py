"""Parameters as differences to a copy that the reader has: encoded on one side, added alike on both.

What is withheld needs no memory of its own: the copy moves by what was sent and nothing else, so that
the next difference holds the rest (the server's half of DoubleSqueeze, Tang et al., ICML 2019). Whatever
is sent whole, as gradients would be, is the parameter itself: there the copy is exact. Knows no versions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.compression import Compression
from paceline.gradients.codecs.choosing import Codecs
from paceline.gradients.codecs.codec import Codec, as_bytes, flat, padded
from paceline.gradients.codecs.encoding import is_finite
from paceline.gradients.codecs.packing import Moment, Parcels, header, read_whole
from paceline.gradients.codecs.topk import TopKCodec
from paceline.gradients.layout import Slot


class Differences:
    """Of parameters in ``slots``, by ``compression``. Each side of a wire has one."""

    def __init__(self, compression: Compression, slots: Sequence[Slot]) -> None:
        self._codecs = Codecs(compression, slots)
        self._parcels = Parcels(slots, self._codecs)
        self._used = bytes([1]) * len(slots)

    @torch.no_grad()
    def encode(
        self, current: Sequence[torch.Tensor], copy: Sequence[torch.Tensor], moment: Moment
    ) -> torch.Tensor | None:
        """The bytes that bring ``copy`` nearer to ``current``; ``copy`` is there then.

        None if something is not finite: it cannot be encoded, and ``copy`` may be anything.
        """
        pieces = [header(moment)]
        for value, own, codec in zip(current, copy, self._codecs.at(moment.share), strict=True):
            difference = value if codec is None else torch.sub(value, own)
            if not is_finite(difference):
                return None
            if codec is None:
                own.copy_(value)
                pieces.append(padded(as_bytes(flat(value))))
                continue
            piece = codec.encode(difference, moment.turn)
            _add(codec, piece, own, moment.turn, difference)
            pieces.append(padded(piece))
        return torch.cat(pieces)

    @torch.no_grad()
    def add(self, parcel: torch.Tensor, copy: Sequence[torch.Tensor]) -> None:
        """Bring ``copy`` to where :meth:`encode` has left the sender's. Raises ParcelError, before
        anything is written if the length is not right."""
        turn, choice, pieces = self._parcels.open(parcel, self._used)
        for piece, codec, own in zip(pieces, choice, copy, strict=True):
            if codec is None:
                read_whole(piece, own)
            else:
                _add(codec, piece, own, turn, None)


def _add(
    codec: Codec, piece: torch.Tensor, own: torch.Tensor, turn: int, room: torch.Tensor | None
) -> None:
    """Add to ``own`` what ``piece`` stands for. ``room``: memory to decode into, if there is any."""
    if isinstance(codec, TopKCodec):
        codec.add(piece, own)
        return
    decoded = torch.empty_like(own) if room is None else room
    codec.decode(piece, decoded, turn)
    own.add_(decoded)
