"""Slots and gradients for the tests of codecs, without a model."""

from __future__ import annotations

import torch

from paceline.compression import Compression, parse_compression
from paceline.gradients.codecs.choosing import Codecs
from paceline.gradients.codecs.feedback import NoFeedback, Residuals
from paceline.gradients.codecs.packing import Packer, Unpacker
from paceline.gradients.layout import FlatLayout, layout_of

WORDS = ("topk:0.05", "randomk:0.05", "powersgd:2", "int8", "sign")
SHAPES = ((36, 40), (9,), (4, 30, 4, 3))


def compression(word: str) -> Compression:
    parsed = parse_compression(word)
    assert parsed is not None
    return parsed


def layout(dtype: torch.dtype = torch.float32) -> FlatLayout:
    """A matrix, a bias, and a kernel whose channels come last in memory."""
    examples = [torch.empty(shape, dtype=dtype) for shape in SHAPES]
    examples[2] = examples[2].to(memory_format=torch.channels_last)
    return layout_of(
        [(f"p{place}", tuple(e.shape), e.stride(), dtype) for place, e in enumerate(examples)]
    )


def views(of: FlatLayout) -> list[torch.Tensor]:
    return of.views(torch.zeros(of.total_bytes, dtype=torch.uint8))


def packer(
    word: str, of: FlatLayout, state: dict[str, dict[str, torch.Tensor]] | None = None
) -> Packer:
    chosen, state = compression(word), state or {}
    residuals = Residuals(of.slots, state.get("residuals"))
    feedback = residuals if chosen.feedback else NoFeedback()
    return Packer(of.slots, Codecs(chosen, of.slots, state.get("starts")), feedback)


def unpacker(word: str, of: FlatLayout) -> Unpacker:
    return Unpacker(compression(word), of.slots)
