"""A codec of the user's, held to what a codec is: what it gets wrong is said in a sentence, not by gloo.

The sentence names the codec and the parameter. Knows tensors and one codec; no ranks.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from paceline.errors import PacelineError, UsageError
from paceline.gradients.codecs.codec import Codec, ParcelError
from paceline.payloads import Shape


class OwnCodec:
    """``codec``, for the parameter ``name``. Its bytes are its own: they share no memory with gradients."""

    def __init__(self, codec: Codec, name: str) -> None:
        self._codec = codec
        self._name = name

    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        """As of any codec. Raises UsageError for bytes that others could not read, or other numbers of
        them than promised."""
        writes = values._version
        try:
            piece = self._codec.encode(values, turn)
        except PacelineError:
            raise
        except Exception as error:
            self._fail("encode", error)
        if values._version != writes:
            self._refuse(
                "encode", "changed the gradient", "leave it as it is: what decode makes of the payload is "
                "taken out of it, and the rest goes into the next update. Write to a copy",
            )  # fmt: skip
        self._check(piece, values)
        alone = piece.contiguous()
        shared = alone.untyped_storage().data_ptr() == values.untyped_storage().data_ptr()
        return alone.clone() if shared or alone.storage_offset() % values.itemsize else alone

    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        """As of any codec; what it leaves out is 0. Raises UsageError if it fails or writes nothing."""
        out.zero_()
        writes = out._version
        try:
            self._codec.decode(parcel, out, turn)
        except (ParcelError, PacelineError):
            raise
        except Exception as error:
            self._fail("decode", error)
        if out._version == writes:
            self._refuse("decode", "has written nothing into out", "overwrite out, in place")

    def payload_bytes(self, shape: Shape, item_bytes: int) -> int:
        return self._codec.payload_bytes(shape, item_bytes)

    def summable(self) -> bool:
        return bool(self._codec.summable())

    def _check(self, piece: Any, values: torch.Tensor) -> None:
        if not isinstance(piece, torch.Tensor) or piece.dtype != torch.uint8 or piece.dim() != 1:
            self._refuse(
                "encode",
                f"returned {_described(piece)}",
                "return a flat tensor of bytes (torch.uint8)",
            )
        if piece.device != values.device:
            self._refuse(
                "encode", f"returned a payload on {piece.device}", f"return it on {values.device}"
            )
        promised = int(self.payload_bytes(tuple(values.shape), values.itemsize))
        if len(piece) != promised:
            self._refuse(
                "encode", f"returned {len(piece)} bytes, and payload_bytes promised {promised}",
                "return as many, whatever the values are: others make room for them before they come",
            )  # fmt: skip
        if self.summable() and len(piece) % values.itemsize:
            self._refuse(
                "summable", f"says yes, and a payload has {len(piece)} bytes",
                f"payloads that are to be summed hold numbers of {values.itemsize} bytes, as the gradient "
                "does: say no, or fill them up",
            )  # fmt: skip

    def _fail(self, method: str, error: Exception) -> NoReturn:
        said = f"{type(error).__name__}: {error}"
        raise UsageError(f"{self._where(method)} failed: {said}.") from error

    def _refuse(self, method: str, what: str, remedy: str) -> NoReturn:
        raise UsageError(f"{self._where(method)} {what}. {remedy[0].upper()}{remedy[1:]}.")

    def _where(self, method: str) -> str:
        return f"compress={type(self._codec).__name__}: {method} of parameter {self._name}"


def _described(piece: Any) -> str:
    if not isinstance(piece, torch.Tensor):
        return f"a {type(piece).__name__}"
    return f"a tensor of {str(piece.dtype).removeprefix('torch.')} in {piece.dim()} dimensions"
