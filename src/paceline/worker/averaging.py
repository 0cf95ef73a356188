"""The mean of the workers' parameters, and the step that the common ones make towards it.

Each worker's replica starts from common parameters, the anchor, and moves. What travels is how far it
moved; the weighted mean of that is the gradient, negated, of an outer optimizer, which moves the anchor.
With SGD of rate 1 the anchor becomes the mean (local SGD: Stich, ICLR 2019); with a rate of 0.7 and
Nesterov momentum this is DiLoCo (Douillard et al., 2023, algorithm 1). That can be done with one
fragment of the parameters at a time (Streaming DiLoCo, Douillard et al., 2025): an equal part of the
values, wherever a tensor ends. Knows no windows and no votes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from paceline.gradients.norms import sum_of_squares
from paceline.strategies import DiLoCo, Strategy, fragments_of

OUTER_MOMENTUM = "outer_momentum"
"""In a parameter's state of the optimizer, beside its own keys: that of the outer optimizer."""
_BUFFER = "momentum_buffer"


class Sums(Protocol):
    """What adds up over all ranks: :class:`paceline.transport.collective.Group`."""

    device: torch.device

    def start_sum(self, tensor: torch.Tensor) -> Any:
        """Begin to replace ``tensor`` by its sum over all ranks."""

    def finish(self, work: Any) -> None:
        """Block until the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """How far a replica is from the mean of all, and how large that is: 2-norms over all trained
    parameters. ``distance`` is None where the replica holds what is not finite."""

    distance: float | None
    size: float


class Average:
    """``tensors``: this worker's replica, equal on all ranks now. Twice its memory is taken, three
    times with an outer momentum. ``write(change)``: calls ``change``, which writes to them."""

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        group: Sums,
        strategy: Strategy,
        write: Callable[[Callable[[], None]], None],
    ) -> None:
        self._tensors = list(tensors)
        self._group = group
        self._write = write
        self._moved, self._moved_views = _flat(tensors)
        self._anchor, self._anchor_views = _flat(tensors)
        torch._foreach_copy_(self._anchor_views, self._tensors)
        self._fragments = fragments_of(strategy)
        self._moved_parts, self._anchor_parts = map(self._parts, (self._moved, self._anchor))
        self._touched = [_within(self._moved_views, part) for part in self._moved_parts]
        self._outer = _outer(strategy, [one for part in self._anchor_parts for one in part])
        self._momentum = self._begin_momentum()

    def sent_bytes(self, fragment: int) -> int:
        """What an exchange of ``fragment`` sends."""
        return sum(one.numel() * one.itemsize for one in self._moved_parts[fragment])

    def finite(self) -> bool:
        """Whether the replica is not lost."""
        return math.isfinite(sum(map(sum_of_squares, self._tensors)))

    def take(self, fragments: Sequence[int]) -> None:
        """Look how far the replica has moved, in ``fragments``."""
        self._copy_touched(fragments)
        for one in fragments:
            torch._foreach_sub_(self._moved_parts[one], self._anchor_parts[one])

    def meet(self, fragment: int, share: float) -> None:
        """Let the mean of all ranks' ways be known, in ``fragment``; this one's, which was taken, counts
        ``share``. Every rank calls it."""
        for moved in self._moved_parts[fragment]:
            if share:
                moved.mul_(share)
            else:
                moved.zero_()  # what is not finite would stay so
            self._group.finish(self._group.start_sum(moved))

    def gap(self) -> Drift | None:
        """How far this replica is from the mean, which all fragments have met; None if that is too large."""
        mean = torch._foreach_add(self._anchor_views, self._moved_views)
        size = math.sqrt(sum(map(sum_of_squares, mean)))
        if not math.isfinite(size):
            return None
        torch._foreach_sub_(mean, self._tensors)
        distance = math.sqrt(sum(map(sum_of_squares, mean)))
        return Drift(distance=distance if math.isfinite(distance) else None, size=size)

    def step(self, fragment: int) -> None:
        """Move the anchor, in ``fragment``, by the mean that :meth:`meet` has found."""
        pairs = zip(self._anchor_parts[fragment], self._moved_parts[fragment], strict=True)
        for anchor, moved in pairs:
            anchor.grad = moved.neg_()
        self._outer.step()  # parts without a gradient stay as they are, momentum too
        self._outer.zero_grad()

    def put(self, fragments: Sequence[int]) -> None:
        """Let the replica be the anchor again, in ``fragments``; elsewhere it goes on."""
        if len(fragments) == self._fragments:
            self._write(partial(torch._foreach_copy_, self._tensors, self._anchor_views))
            return
        tensors, values = self._copy_touched(fragments)
        for one in fragments:
            torch._foreach_copy_(self._moved_parts[one], self._anchor_parts[one])
        self._write(partial(torch._foreach_copy_, tensors, values))

    @contextmanager
    def showing(self, parameters: Sequence[torch.nn.Parameter]) -> Iterator[None]:
        """Inside, ``parameters`` (which ``tensors`` are, or are masters of) hold the anchor. Nothing is
        written: a graph that was built before stays valid."""
        kept = [parameter.data for parameter in parameters]
        for parameter, view in zip(parameters, self._anchor_views, strict=True):
            parameter.data = view.to(parameter.dtype)
        try:
            yield
        finally:
            for parameter, own in zip(parameters, kept, strict=True):
                parameter.data = own

    def replica(self) -> list[torch.Tensor]:
        """This worker's own, for a checkpoint: :meth:`showing` it the anchor is the model's."""
        return [one.detach().clone() for one in self._tensors]

    def take_replica(self, kept: Sequence[torch.Tensor]) -> None:
        """Begin with the replica ``kept``, while the anchor stays where it is."""
        self._write(partial(torch._foreach_copy_, self._tensors, list(kept)))

    def momentum(self) -> list[torch.Tensor]:
        """The outer optimizer's, a view for each tensor; empty if it has none."""
        return self._momentum

    def take_momentum(self, kept: Sequence[torch.Tensor]) -> None:
        """Begin with the outer momentum ``kept``, one for each tensor, if there is to be any."""
        if self._momentum:
            torch._foreach_copy_(self._momentum, list(kept))

    def _copy_touched(
        self, fragments: Sequence[int]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The replica's tensors that ``fragments`` have a part of, and where their values are now: in what
        :meth:`take` looks at."""
        places = sorted({place for one in fragments for place in self._touched[one]})
        tensors = [self._tensors[place] for place in places]
        values = [self._moved_views[place] for place in places]
        torch._foreach_copy_(values, tensors)
        return tensors, values

    def _begin_momentum(self) -> list[torch.Tensor]:
        """All zeros, which is where it begins: fragments that have not met have one too, to be saved."""
        if not self._outer.defaults["momentum"]:
            return []
        vectors, views = _flat(self._tensors)
        for anchors, own in zip(self._anchor_parts, self._parts(vectors), strict=True):
            for anchor, one in zip(anchors, own, strict=True):
                self._outer.state[anchor][_BUFFER] = one
        return views

    def _parts(self, vectors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Of each fragment its piece of every vector: as many values in each, but for one."""
        pieces = [vector.tensor_split(self._fragments) for vector in vectors]
        return [list(of_one) for of_one in zip(*pieces, strict=True)]


def _outer(strategy: Strategy, anchor: list[torch.Tensor]) -> torch.optim.Optimizer:
    if not isinstance(strategy, DiLoCo):
        return torch.optim.SGD(anchor, lr=1.0)
    momentum = strategy.outer_momentum
    return torch.optim.SGD(anchor, lr=strategy.outer_lr, momentum=momentum, nesterov=momentum > 0)


def _flat(tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """One flat vector of zeros for each type, and a view of it for each tensor."""
    sizes: dict[torch.dtype, int] = {}
    for one in tensors:
        sizes[one.dtype] = sizes.get(one.dtype, 0) + one.numel()
    device = tensors[0].device
    vectors = [torch.zeros(size, dtype=dtype, device=device) for dtype, size in sizes.items()]
    return vectors, _views(vectors, tensors)


def _views(vectors: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The piece of its type's vector that belongs to each tensor, in its shape."""
    left = {vector.dtype: vector for vector in vectors}
    views = []
    for one in tensors:
        piece, left[one.dtype] = left[one.dtype].tensor_split([one.numel()])
        views.append(piece.view(one.shape))
    return views


def _within(views: Sequence[torch.Tensor], pieces: Sequence[torch.Tensor]) -> list[int]:
    """Places of the ``views`` that have memory in common with one of ``pieces``."""
    ranges = [_memory(piece) for piece in pieces]
    return [
        place
        for place, view in enumerate(views)
        if any(begin < _memory(view)[1] and _memory(view)[0] < end for begin, end in ranges)
    ]


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte, and that after the last, of a tensor without gaps."""
    begin = tensor.data_ptr()
    return begin, begin + tensor.numel() * tensor.itemsize
