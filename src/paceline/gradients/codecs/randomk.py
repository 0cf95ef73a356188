"""Values at indices that both sides draw alike, so that none travel (Stich et al., NeurIPS 2018).

The indices are ``(a i + b) mod n`` for i = 0, 1, ..., with b drawn at random and a random a that has
no divisor in common with n: all different, every value as likely as any other, and drawn in a pass
over those that are sent alone (a shuffle would take one over all).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch

from paceline import payloads
from paceline.compression import RandomK
from paceline.gradients.codecs.codec import as_bytes, check_finite, cut, flat
from paceline.payloads import Shape


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomKCodec:
    """``place``: the number of its parameter, so that no two draw the same."""

    method: RandomK
    place: int

    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        every = flat(values)
        return as_bytes(every[self._indices(every, turn)])

    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        every = flat(out)
        places = self._indices(every, turn)
        values, _ = cut(parcel, out.dtype, len(places))
        check_finite(values)
        every.zero_()
        every[places] = values

    def strip(self, parcel: torch.Tensor, gradient: torch.Tensor, turn: int) -> torch.Tensor:
        """Leave in ``gradient`` what its ``parcel`` does not hold; the values that it does."""
        every = flat(gradient)
        places = self._indices(every, turn)
        values, _ = cut(parcel, gradient.dtype, len(places))
        every[places] = 0
        return values

    def payload_bytes(self, shape: Shape, item_bytes: int) -> int:
        return payloads.payload_bytes(self.method, shape, item_bytes)

    def summable(self) -> bool:
        return True

    def _indices(self, every: torch.Tensor, turn: int) -> torch.Tensor:
        total = every.numel()
        draw = random.Random(f"{self.method.seed}/{turn}/{self.place}")
        start, step = draw.randrange(total), draw.randrange(total)
        while math.gcd(step, total) != 1:
            step = draw.randrange(total)
        count = payloads.kept(total, self.method.density)
        return torch.arange(count, device=every.device).mul_(step).add_(start).remainder_(total)
