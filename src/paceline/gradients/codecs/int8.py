"""8 bits a value, in units of each block's largest (after Dettmers, ICLR 2016).

Rounded to the nearest, not at random: what is lost is fed back, so that nothing needs to be right on
average, and the nearest has half the error, needs no random numbers and repeats itself bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paceline import payloads
from paceline.compression import Int8
from paceline.gradients.codecs.codec import as_bytes, check_finite, cut, flat
from paceline.payloads import Shape

STEPS = 127


@dataclass(frozen=True, kw_only=True, slots=True)
class Int8Codec:
    """Blocks of :data:`paceline.payloads.BLOCK` values, the last one shorter."""

    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        parts = [_encoded(blocks) for blocks in _blocks(flat(values))]
        return as_bytes(*[scales for scales, _ in parts], *[steps for _, steps in parts])

    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        every = flat(out)
        count = -(-every.numel() // payloads.BLOCK)
        scales, rest = cut(parcel, out.dtype, count)
        steps, _ = cut(rest, torch.int8, every.numel())
        check_finite(scales)
        begin = 0
        for blocks, own in zip(_blocks(every), _blocks(steps), strict=True):
            blocks.copy_(own).mul_(scales[begin : begin + len(blocks), None])
            begin += len(blocks)

    def payload_bytes(self, shape: Shape, item_bytes: int) -> int:
        return payloads.payload_bytes(Int8(), shape, item_bytes)

    def summable(self) -> bool:
        return False


def _blocks(every: torch.Tensor) -> list[torch.Tensor]:
    """Whole blocks as rows, and the rest as one row."""
    whole = every.numel() // payloads.BLOCK * payloads.BLOCK
    parts = [every[:whole].view(-1, payloads.BLOCK), every[whole:].view(1, -1)]
    return [part for part in parts if part.numel()]


def _encoded(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scales = blocks.abs().amax(1).div_(STEPS)  # a sixteenth of what a norm takes
    units = torch.where(scales > 0, scales, 1.0)
    steps = torch.div(blocks, units[:, None]).round_().clamp_(-STEPS, STEPS)
    return scales, steps.to(torch.int8)
