"""The values largest in magnitude, each with its index (Aji and Heafield, EMNLP 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paceline import payloads
from paceline.compression import TopK
from paceline.gradients.codecs.codec import ParcelError, as_bytes, check_finite, cut, flat
from paceline.gradients.codecs.largest import largest
from paceline.payloads import Shape


@dataclass(frozen=True, kw_only=True, slots=True)
class TopKCodec:
    """``method``: which share of the values."""

    method: TopK

    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        every = flat(values)
        places = largest(every, payloads.kept(every.numel(), self.method.density))
        return as_bytes(every[places], places.to(torch.int32))

    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        values, places = self._read(parcel, out)
        flat(out).zero_()[places] = values

    def add(self, parcel: torch.Tensor, out: torch.Tensor) -> None:
        """As :meth:`decode`, added to ``out``: touches no more than what was sent."""
        values, places = self._read(parcel, out)
        flat(out)[places] += values

    def strip(self, parcel: torch.Tensor, gradient: torch.Tensor, turn: int) -> torch.Tensor:
        """Leave in ``gradient`` what its ``parcel`` does not hold; the values that it does."""
        values, places = self._read(parcel, gradient)
        flat(gradient)[places] = 0
        return values

    def _read(self, parcel: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        every = flat(out)
        count = payloads.kept(every.numel(), self.method.density)
        values, rest = cut(parcel, out.dtype, count)
        places, _ = cut(rest, torch.int32, count)
        low, high = torch.aminmax(places)
        if int(low) < 0 or int(high) >= every.numel():
            raise ParcelError(f"an index outside 0 to {every.numel() - 1}")
        check_finite(values)
        return values, places.to(torch.int64)

    def payload_bytes(self, shape: Shape, item_bytes: int) -> int:
        return payloads.payload_bytes(self.method, shape, item_bytes)

    def summable(self) -> bool:
        return False
