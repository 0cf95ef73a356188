"""The mean of the workers' parameters, and the step that the common ones make towards it.

Each worker's replica starts from common parameters, the anchor, and moves. What travels is how far it
moved; the weighted mean of that is the gradient, negated, of an outer optimizer, which moves the anchor.
With SGD of rate 1 the anchor becomes the mean (local SGD: Stich, ICLR 2019); with a rate of 0.7 and
Nesterov momentum this is DiLoCo (Douillard et al., 2023, algorithm 1). Knows no windows and no votes.
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
from paceline.strategies import DiLoCo, Strategy
from paceline.worker.manifest import Trainable

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
        self._outer = _outer(strategy, self._anchor)
        self.sent_bytes = sum(one.numel() * one.itemsize for one in self._moved)

    def measure(self) -> float:
        """How far the replica has moved, as a 2-norm; not finite if it is lost, or too large."""
        torch._foreach_copy_(self._moved_views, self._tensors)
        torch._foreach_sub_(self._moved, self._anchor)
        return math.sqrt(sum(map(sum_of_squares, self._moved)))

    def meet(self, share: float) -> None:
        """Let the mean of all ranks' ways be known; this one's counts ``share``. Every rank calls it."""
        for moved in self._moved:
            if share:
                moved.mul_(share)
            else:
                moved.zero_()  # what is not finite would stay so
            self._group.finish(self._group.start_sum(moved))

    def gap(self) -> Drift | None:
        """How far this replica is from the mean that :meth:`meet` has found; None if that is too large."""
        mean = torch._foreach_add(self._anchor_views, self._moved_views)
        size = math.sqrt(sum(map(sum_of_squares, mean)))
        if not math.isfinite(size):
            return None
        torch._foreach_sub_(mean, self._tensors)
        distance = math.sqrt(sum(map(sum_of_squares, mean)))
        return Drift(distance=distance if math.isfinite(distance) else None, size=size)

    def step(self) -> None:
        """Move the anchor by the mean that :meth:`meet` has found."""
        for anchor, moved in zip(self._anchor, self._moved, strict=True):
            anchor.grad = moved.neg_()
        self._outer.step()
        self._outer.zero_grad()

    def put(self) -> None:
        """Let the replica be the anchor again."""
        self._write(partial(torch._foreach_copy_, self._tensors, self._anchor_views))

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

    def momentum(self) -> list[torch.Tensor] | None:
        """The outer optimizer's, a view for each tensor; None if it has none (yet)."""
        states = [self._outer.state[anchor].get(_BUFFER) for anchor in self._anchor]
        if any(state is None for state in states):
            return None
        return _views(states, self._tensors)

    def take_momentum(self, kept: Sequence[torch.Tensor]) -> None:
        """Begin with the outer momentum ``kept``, one for each tensor."""
        vectors, views = _flat(self._tensors)
        torch._foreach_copy_(views, list(kept))
        for anchor, vector in zip(self._anchor, vectors, strict=True):
            self._outer.state[anchor][_BUFFER] = vector


def taken_momentum(
    optimizer: torch.optim.Optimizer, trainables: Sequence[Trainable]
) -> list[torch.Tensor] | None:
    """The outer momentum that a checkpoint has put into the state of ``optimizer``, out of it again."""
    states = [optimizer.state.get(one.parameter, {}) for one in trainables]
    kept = [state.pop(OUTER_MOMENTUM, None) for state in states]
    return None if any(one is None for one in kept) else kept


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
