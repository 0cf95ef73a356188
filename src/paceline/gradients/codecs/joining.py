"""Compressed gradients of all ranks as one, by collectives; every rank enters the same ones in one order.

First what sums: whole gradients, payloads of codecs that can be added, the first factors of products.
Then the second factors. Last the payloads that cannot be added, which everybody gathers and decodes.
All parameters go together, so the order depends on nothing a rank could see differently.
Knows no votes and no steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from paceline import payloads
from paceline.gradients.codecs.choosing import Codecs
from paceline.gradients.codecs.codec import Codec, ParcelError, flat, padded
from paceline.gradients.codecs.encoding import encode
from paceline.gradients.codecs.feedback import Feedback
from paceline.gradients.codecs.packing import Moment
from paceline.gradients.codecs.powersgd import PowerSGDCodec, multiply, product
from paceline.gradients.codecs.topk import TopKCodec


class Collectives(Protocol):
    """What adds up, and gathers, over all ranks."""

    def start_sum(self, tensor: torch.Tensor, on_done: Callable[[], None] | None = None) -> Any:
        """Begin to replace ``tensor`` by its sum."""

    def start_gather(self, tensor: torch.Tensor) -> Any:
        """Begin to gather ``tensor`` of every rank: ``parts`` of what this returns."""

    def finish(self, work: Any) -> None:
        """Block until the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """``moment``: when and in which units. ``used``: whether any rank used a parameter; ``own``: whether
    this one did (all False if it computed nothing)."""

    moment: Moment
    used: Sequence[bool]
    own: Sequence[bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """What this rank brought. ``whole_bytes``: what it would have been uncompressed; ``wire_bytes``:
    what it is worth in bytes of an all-reduce."""

    sent_bytes: int
    whole_bytes: int
    wire_bytes: float


class Joiner:
    """Joins ``gradients`` (views, in the order of the parameters) of ``world_size`` ranks, in place."""

    def __init__(
        self,
        group: Collectives,
        gradients: Sequence[torch.Tensor],
        codecs: Codecs,
        feedback: Feedback,
        *,
        world_size: int,
    ) -> None:
        self._group = group
        self._gradients = gradients
        self._codecs = codecs
        self._feedback = feedback
        self._world_size = world_size

    @torch.no_grad()
    def join(self, window: Window) -> Sent:
        """Replace every used gradient by its sum over ranks, as far as it is sent; NaN where that is
        not finite. What is withheld is fed back. To be followed by :meth:`settle`."""
        choice = self._codecs.at(window.moment.share)
        places = [place for place, used in enumerate(window.used) if used]
        summing = [place for place in places if not _gathers(choice[place])]
        work = [self._steps(place, choice[place], window) for place in summing]
        summed = self._sum(work)
        gathered = self._gather([place for place in places if _gathers(choice[place])], window)
        whole = sum(self._gradients[place].nbytes for place in places)
        # Of a gathered byte every rank gets N - 1, of a summed one 2 (N - 1) / N.
        return Sent(
            sent_bytes=summed + gathered,
            whole_bytes=whole,
            wire_bytes=summed + gathered * self._world_size / 2,
        )

    def settle(self, applied: bool) -> None:
        """The update was applied, or leaves no trace."""
        self._feedback.settle(applied)
        self._codecs.settle(applied)

    def state(self) -> dict[str, Any]:
        """For this rank's part of a checkpoint."""
        return {"residuals": self._feedback.residuals(), "starts": self._codecs.starts()}

    def _steps(
        self, place: int, codec: Codec | None, window: Window
    ) -> Generator[torch.Tensor, None, None]:
        """Yields what is to be summed over ranks, in place, and leaves the sum in the gradient."""
        gradient = self._gradients[place]
        self._correct(place, window)
        if codec is None:
            if window.own[place]:
                self._feedback.sent_whole(place)
            yield flat(gradient)
        elif isinstance(codec, PowerSGDCodec):
            left, mine = yield from codec.factors(gradient)
            gradient.sub_(product(left, mine, gradient))
            self._withhold(place, window)
            multiply(left, codec.summed, gradient)
        elif codec.summable():
            encoded = encode(codec, gradient, window.moment.turn)
            self._withhold(place, window)
            yield encoded.piece.view(gradient.dtype)
            _decode(codec, encoded.piece, gradient, window.moment.turn)

    def _sum(self, work: Sequence[Generator[torch.Tensor, None, None]]) -> int:
        """Run all of them side by side, each stage in one sum a type. How many bytes were brought."""
        sent_bytes = 0
        going = list(work)
        while going:
            vectors = [next(one, None) for one in going]
            going = [one for one, vector in zip(going, vectors, strict=True) if vector is not None]
            tensors = [vector for vector in vectors if vector is not None]
            for dtype in dict.fromkeys(one.dtype for one in tensors):
                sent_bytes += self._sum_alike([one for one in tensors if one.dtype == dtype])
        return sent_bytes

    def _sum_alike(self, tensors: Sequence[torch.Tensor]) -> int:
        joined = torch.cat([one.reshape(-1) for one in tensors])
        self._group.finish(self._group.start_sum(joined))
        parts = torch.split(joined, [one.numel() for one in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))
        return joined.numel() * joined.itemsize

    def _gather(self, places: Sequence[int], window: Window) -> int:
        """The parameters in ``places``, by gathering. How many bytes were brought."""
        if not places:
            return 0
        choice, turn = self._codecs.at(window.moment.share), window.moment.turn
        pieces = []
        for place in places:
            codec = choice[place]
            assert codec is not None
            self._correct(place, window)
            pieces.append(encode(codec, self._gradients[place], turn).piece)
            self._withhold(place, window)
        for place, parcels in zip(places, self._gathered(pieces), strict=True):
            codec = choice[place]
            assert codec is not None
            self._add_up(codec, parcels, self._gradients[place], turn)
        return sum(payloads.aligned(len(piece)) for piece in pieces)

    def _gathered(self, pieces: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
        """Of each piece, every rank's."""
        pending = self._group.start_gather(torch.cat([padded(piece) for piece in pieces]))
        self._group.finish(pending)
        sizes = [payloads.aligned(len(piece)) for piece in pieces]
        ranks = [torch.split(part, sizes) for part in pending.parts]
        for number, piece in enumerate(pieces):
            yield [parts[number][: len(piece)] for parts in ranks]

    def _add_up(
        self, codec: Codec, parcels: Sequence[torch.Tensor], out: torch.Tensor, turn: int
    ) -> None:
        """In rank order: every rank gets the same bits."""
        first, *others = parcels
        _decode(codec, first, out, turn)
        room = None if isinstance(codec, TopKCodec) else torch.empty_like(out)
        for parcel in others:
            if room is None:
                assert isinstance(codec, TopKCodec)
                _add_sparse(codec, parcel, out)
            else:
                _decode(codec, parcel, room, turn)
                out.add_(room)

    def _correct(self, place: int, window: Window) -> None:
        if window.own[place]:
            self._feedback.correct(place, self._gradients[place], window.moment.unit)

    def _withhold(self, place: int, window: Window) -> None:
        """The gradient holds what is not on its way."""
        if window.own[place]:
            self._feedback.withhold(place, self._gradients[place], window.moment.unit)


def _gathers(codec: Codec | None) -> bool:
    return codec is not None and not codec.summable()


def _decode(codec: Codec, payload: torch.Tensor, out: torch.Tensor, turn: int) -> None:
    """Ranks trust each other: what cannot be read is not finite, and all of them see that."""
    try:
        codec.decode(payload, out, turn)
    except ParcelError:
        out.fill_(torch.nan)


def _add_sparse(codec: TopKCodec, parcel: torch.Tensor, out: torch.Tensor) -> None:
    try:
        codec.add(parcel, out)
    except ParcelError:
        out.fill_(torch.nan)
