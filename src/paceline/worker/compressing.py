"""What a worker makes of a push before it leaves: bytes, if ``compress`` says so; and what that saved.

Knows messages and the clock, not how gradients are encoded (:mod:`paceline.gradients.codecs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import torch

from paceline.compression import Compression, WarmUpShare
from paceline.gradients.codecs.choosing import Codecs
from paceline.gradients.codecs.feedback import feedback_for
from paceline.gradients.codecs.packing import Moment, Packer
from paceline.gradients.layout import FlatLayout
from paceline.transport.messages import Push
from paceline.worker.compression_account import Account

State = Mapping[str, Mapping[str, torch.Tensor]]
OVERFLOWED = "the gradient and what compression had withheld from it, together"


class Compressing(Protocol):
    """What becomes of each push."""

    @property
    def account(self) -> Account | None:
        """What was saved so far, if anything is compressed."""

    def packed(self, push: Push, *, turn: int, progress: int, window: int) -> Push:
        """``push`` as it is to be sent. ``turn``: of the parameters' version; ``progress``: loader
        batches so far, ``window`` of which are one."""

    def settle(self, applied: bool) -> None:
        """The push was applied, or leaves no trace."""

    def state(self) -> dict[str, Any]:
        """For this worker's part of a checkpoint."""


class Uncompressed:
    """Gradients travel as they are, where they lie."""

    account: Account | None = None

    def packed(self, push: Push, *, turn: int, progress: int, window: int) -> Push:
        return push

    def settle(self, applied: bool) -> None:
        return

    def state(self) -> dict[str, Any]:
        return {}


class Compressed:
    """``views``: the gradient of each parameter, in the region; ``sizes_bytes``: of each of them."""

    def __init__(
        self,
        packer: Packer,
        share: WarmUpShare,
        views: Sequence[torch.Tensor],
        account: Account,
        clock_s: Callable[[], float],
    ) -> None:
        self.account: Account = account
        self._packer = packer
        self._share = share
        self._views = views
        self._clock_s = clock_s

    def packed(self, push: Push, *, turn: int, progress: int, window: int) -> Push:
        if push.weight == 0 or push.bad:
            return push
        began_s = self._clock_s()
        moment = Moment(turn=turn, share=self._share.at(progress, window), unit=push.unit)
        self.account.warm(moment.share)
        packed = self._packer.pack(self._views, push.used, moment)
        if packed.bad is not None:
            return msgspec.structs.replace(push, bad=OVERFLOWED)
        parcel = None if packed.parcel is None else packed.parcel.numpy().tobytes()
        size = None if parcel is None else len(parcel)
        self.account.packed(size, push.used, self._clock_s() - began_s)
        return msgspec.structs.replace(push, parcel=parcel, norm=math.sqrt(packed.squares))

    def settle(self, applied: bool) -> None:
        self._packer.settle(applied)

    def state(self) -> dict[str, Any]:
        return dict(self._packer.state())


def packer_of(compression: Compression, layout: FlatLayout, kept: State) -> Packer:
    """The encoder of gradients in ``layout``. ``kept``: what a checkpoint has for this worker."""
    feedback = feedback_for(compression, layout.slots, kept.get("residuals"))
    return Packer(layout.slots, Codecs(compression, layout.slots, kept.get("starts")), feedback)


def compressing(
    compression: Compression | None,
    layout: FlatLayout,
    views: Sequence[torch.Tensor],
    *,
    kept: State,
    workers: int,
    clock_s: Callable[[], float],
    wire_bytes_per_s: float | None,
    speaker: Callable[[], int],
) -> Compressing:
    """What one of ``workers`` does to its gradients (``views`` of ``layout``) before it sends them.
    ``speaker``: whose account stands for all."""
    if compression is None:
        return Uncompressed()
    return Compressed(
        packer_of(compression, layout, kept),
        WarmUpShare(updates=compression.warmup, workers=workers),
        views,
        Account([slot.span_bytes for slot in layout.slots], wire_bytes_per_s, rank=speaker()),
        clock_s,
    )
