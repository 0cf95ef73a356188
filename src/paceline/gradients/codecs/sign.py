"""1 bit a value: its sign, times the mean magnitude (EF-SignSGD, Karimireddy et al., ICML 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
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
        scale = every.abs().sum().div_(every.numel()).view(1)
        return as_bytes(scale, _packed(every))

    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        every = flat(out)
        scale, rest = cut(parcel, out.dtype, 1)
        packed, _ = cut(rest, torch.uint8, -(-every.numel() // 8))
        check_finite(scale)
        _spread(packed, scale, every)

    def payload_bytes(self, shape: Shape, item_bytes: int) -> int:
        return payloads.payload_bytes(Sign(), shape, item_bytes)

    def summable(self) -> bool:
        return False


def _packed(every: torch.Tensor) -> torch.Tensor:
    """Whether each is positive: eight in a byte, the first in its lowest bit; the last byte is filled up
    with zeros."""
    if every.device.type == "cpu":  # where numpy takes a twentieth of torch's time
        return torch.from_numpy(np.packbits(every.numpy() >= 0, bitorder="little"))
    padded = torch.nn.functional.pad((every >= 0).to(torch.uint8), (0, -len(every) % 8)).view(-1, 8)
    packed = padded[:, 0].clone()
    for place in range(1, 8):
        packed |= padded[:, place] << place
    return packed


def _spread(packed: torch.Tensor, scale: torch.Tensor, every: torch.Tensor) -> None:
    """Overwrite ``every`` with ``scale`` or its negative, as the bits in ``packed`` say."""
    if every.device.type != "cpu":
        places = torch.arange(8, dtype=torch.uint8, device=packed.device)
        bits = ((packed[:, None] >> places) & 1).view(-1)
        every.copy_(bits[: every.numel()]).mul_(2).sub_(1).mul_(scale)
        return
    positive = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    value = scale.numpy()
    table = np.where(positive, value, -value)  # what each byte stands for
    whole = every.numel() // 8
    out, codes = every.numpy(), packed.numpy()
    np.take(table, codes[:whole], axis=0, out=out[: 8 * whole].reshape(-1, 8), mode="clip")
    out[8 * whole :] = table[codes[-1]][: len(out) - 8 * whole]
