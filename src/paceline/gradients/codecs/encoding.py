"""A parameter's gradient encoded, and what is left of it: what both planes do with each one.

The gradient is overwritten by what is withheld: it has left in its parcel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from paceline.gradients.codecs.codec import Codec, ParcelError
from paceline.gradients.codecs.randomk import RandomKCodec
from paceline.gradients.codecs.topk import TopKCodec
from paceline.gradients.norms import sum_of_squares


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """``piece``: the bytes; ``squares``: the sum of squares of what they stand for, NaN if something is
    not finite."""

    piece: torch.Tensor
    squares: float


def encode(codec: Codec, gradient: torch.Tensor, turn: int) -> Encoded:
    """Encode ``gradient``, and leave what is withheld in its place. One that is not finite is encoded
    so that everybody who decodes it sees that."""
    if not is_finite(gradient):
        gradient.fill_(torch.nan)
    piece = codec.encode(gradient, turn)
    try:
        return Encoded(piece=piece, squares=squares_of(_take_out(codec, piece, gradient, turn)))
    except ParcelError:  # the gradient was not finite, or a scale has overflowed
        return Encoded(piece=piece, squares=math.nan)


def _take_out(codec: Codec, piece: torch.Tensor, gradient: torch.Tensor, turn: int) -> torch.Tensor:
    """Take what ``piece`` stands for out of ``gradient``; the values that are not zero, at least."""
    if isinstance(codec, TopKCodec | RandomKCodec):
        return codec.strip(piece, gradient, turn)
    sent = torch.empty_like(gradient)
    codec.decode(piece, sent, turn)
    gradient.sub_(sent)
    return sent


def squares_of(sent: torch.Tensor) -> float:
    """The sum of squares of what is sent, NaN if something is not finite."""
    squares = sum_of_squares(sent)
    return squares if math.isfinite(squares) or is_finite(sent) else math.nan


def is_finite(values: torch.Tensor) -> bool:
    """The square of a large number may overflow where the number has not."""
    return math.isfinite(sum_of_squares(values)) or bool(torch.isfinite(values).all())
