"""What a codec is: four methods. It sees one parameter's gradient at a time and keeps nothing of it.

``encode`` makes bytes of values, ``decode`` values of bytes; the difference is somebody else's
business (:mod:`paceline.gradients.codecs.feedback`). Bytes that come over a wire are hostile until
``decode`` has looked at them.
"""

from __future__ import annotations

from typing import Protocol

import torch

from paceline import payloads
from paceline.payloads import Shape


class ParcelError(ValueError):
    """Bytes that no encoder has made: of a wrong length, an index out of range, a number not finite."""


class Codec(Protocol):
    """``values`` and ``out``: a gradient, dense in memory in any order of its dimensions, on any device.
    ``turn``: which update it is for, the same on both sides. A user's own object may take its place."""

    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        """The bytes (uint8, flat, ``payload_bytes`` of them) that stand for ``values``."""

    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        """Overwrite ``out`` with what ``parcel`` stands for. Raises :class:`ParcelError`."""

    def payload_bytes(self, shape: Shape, item_bytes: int) -> int:
        """How many bytes a gradient of ``shape`` has, of ``item_bytes`` a value."""

    def summable(self) -> bool:
        """Whether the sum of ranks' payloads, as numbers of the gradient's type, stands for the sum."""


def flat(values: torch.Tensor) -> torch.Tensor:
    """All of ``values`` as they follow each other in memory, which they fill."""
    return values.as_strided((values.numel(),), (1,))


def as_bytes(*parts: torch.Tensor) -> torch.Tensor:
    """The bytes of ``parts``, one after the other."""
    raw = [part.contiguous().view(-1).view(torch.uint8) for part in parts]
    return raw[0] if len(raw) == 1 else torch.cat(raw)


def padded(piece: torch.Tensor) -> torch.Tensor:
    """``piece`` with zeros up to where the next one may begin."""
    missing = payloads.aligned(len(piece)) - len(piece)
    return torch.nn.functional.pad(piece, (0, missing)) if missing else piece


def cut(parcel: torch.Tensor, dtype: torch.dtype, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first ``count`` numbers in ``parcel``, and the bytes after them. Raises ParcelError."""
    size_bytes = count * dtype.itemsize
    if parcel.numel() < size_bytes:
        raise ParcelError(f"{parcel.numel()} bytes where {size_bytes} were expected")
    head = parcel[:size_bytes]
    if head.storage_offset() % dtype.itemsize:
        head = head.clone()
    return head.view(dtype), parcel[size_bytes:]


def check_finite(values: torch.Tensor) -> None:
    """Raises ParcelError unless all are."""
    if not bool(torch.isfinite(values).all()):
        raise ParcelError("a number that is not finite")
