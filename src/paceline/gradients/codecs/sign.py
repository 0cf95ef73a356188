"""1 bit a value: its sign, times the mean magnitude (EF-SignSGD, Karimireddy et al., ICML 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paceline import payloads
from paceline.compression import Sign
from paceline.gradients.codecs.codec import as_bytes, check_finite, cut, flat
from paceline.payloads import Shape


@dataclass(frozen=True, kw_only=True, slots=True)
class SignCodec:
    """One scale for the whole parameter. A zero counts as positive."""

    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        every = flat(values)
        scale = torch.linalg.vector_norm(every, ord=1).div_(every.numel()).view(1)
        return as_bytes(scale, _packed(every >= 0))

    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        every = flat(out)
        scale, rest = cut(parcel, out.dtype, 1)
        packed, _ = cut(rest, torch.uint8, -(-every.numel() // 8))
        check_finite(scale)
        every.copy_(_unpacked(packed)[: every.numel()]).mul_(2).sub_(1).mul_(scale)

    def payload_bytes(self, shape: Shape, item_bytes: int) -> int:
        return payloads.payload_bytes(Sign(), shape, item_bytes)

    def summable(self) -> bool:
        return False


def _packed(bits: torch.Tensor) -> torch.Tensor:
    """Eight in a byte, the first in its lowest bit; the last byte is filled up with zeros."""
    padded = torch.nn.functional.pad(bits.to(torch.uint8), (0, -len(bits) % 8)).view(-1, 8)
    packed = padded[:, 0].clone()
    for place in range(1, 8):
        packed |= padded[:, place] << place
    return packed


def _unpacked(packed: torch.Tensor) -> torch.Tensor:
    places = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, None] >> places) & 1).view(-1)
