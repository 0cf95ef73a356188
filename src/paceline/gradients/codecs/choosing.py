"""Which codec each parameter has at a point of the warm-up. Knows neither bytes nor residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from paceline.compression import Compression, Int8, Method, Own, PowerSGD, RandomK, Sign, TopK, at
from paceline.gradients.codecs.codec import Codec
from paceline.gradients.codecs.int8 import Int8Codec
from paceline.gradients.codecs.own import OwnCodec
from paceline.gradients.codecs.powersgd import PowerSGDCodec
from paceline.gradients.codecs.randomk import RandomKCodec
from paceline.gradients.codecs.sign import SignCodec
from paceline.gradients.codecs.topk import TopKCodec
from paceline.gradients.layout import Slot
from paceline.payloads import is_whole

Choice = Sequence[Codec | None]
"""A codec for each parameter; None: it is sent whole."""


class Codecs:
    """The codecs of the parameters in ``slots``. ``starts``: what those that go on from an earlier
    gradient begin with, by parameter name (see :meth:`starts`)."""

    def __init__(
        self,
        compression: Compression,
        slots: Sequence[Slot],
        starts: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self._compression = compression
        self._slots = slots
        self._starts = starts or {}
        self._method: Method | None = None
        self._chosen: list[Codec | None] = [None] * len(slots)

    def at(self, share: float) -> Choice:
        """Those that hold when a ``share`` (0 to 1) of the warm-up is over."""
        method = at(self._compression, share)
        if method != self._method:
            self._method = method
            self._chosen = [self._codec(place, slot) for place, slot in enumerate(self._slots)]
        return self._chosen

    def settle(self, applied: bool) -> None:
        """The gradients encoded last were applied, or are as if they had not been."""
        for codec in self._chosen:
            if isinstance(codec, PowerSGDCodec):
                codec.settle(applied)

    def starts(self) -> dict[str, torch.Tensor]:
        """What the codecs would go on from, by parameter name."""
        if self._method is None:  # nothing was encoded yet
            return dict(self._starts)
        return {
            slot.name: codec.start
            for slot, codec in zip(self._slots, self._chosen, strict=True)
            if isinstance(codec, PowerSGDCodec) and codec.start is not None
        }

    def _codec(self, place: int, slot: Slot) -> Codec | None:
        method = self._method
        if method is None or is_whole(method, slot.shape, slot.dtype.itemsize):
            return None
        return _codec_of(method, place, slot.name, self._starts.get(slot.name))


def _codec_of(method: Method, place: int, name: str, start: torch.Tensor | None) -> Codec:
    match method:
        case TopK():
            return TopKCodec(method=method)
        case RandomK():
            return RandomKCodec(method=method, place=place)
        case PowerSGD():
            return PowerSGDCodec(method, place, start)
        case Int8():
            return Int8Codec()
        case Sign():
            return SignCodec()
        case Own():
            return OwnCodec(method.codec, name)
