"""Evaluation: one-sided inside the training loop, joint and equal on all ranks after it.

Inside the loop nobody else is waited for: this rank sees the latest whole version of the parameters
and its own buffers, reads the whole loader, and its mean is its own. After the loop all live workers
take part, share the data and pool the mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from paceline.errors import UsageError
from paceline.worker.agreement import pooled_mean
from paceline.worker.batch import on_device
from paceline.worker.feeding import MapFeed
from paceline.worker.order import is_map_style, length_of
from paceline.worker.parts import Parts
from paceline.worker.planning import Demand, loader_seed, order_of

_CALL = "worker.evaluate"


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Which batches are this rank's: number ``position`` of ``members``; alone: all of them."""

    members: Sequence[int]
    rank: int

    @property
    def alone(self) -> bool:
        return len(self.members) == 1

    def numbers(self, total: int) -> range:
        """This rank's batches of ``total``: every n-th one."""
        return range(self.members.index(self.rank), total, len(self.members))


class Evaluator:
    """What ``worker.evaluate``, and ``batches`` and ``mean`` within it, do."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._passes = 0
        self.share: Share | None = None
        """Set while an evaluation goes on."""

    @contextmanager
    def running(self, *, inside: bool) -> Iterator[None]:
        """Eval mode and no_grad; modes and training parameters are put back at exit."""
        if self.share is not None:
            raise UsageError(
                "worker.evaluate() was called inside worker.evaluate(). Leave the first."
            )
        parts, rank = self._parts, self._parts.launch.rank
        phase = parts.phases.current
        parts.phases.enter("evaluate")
        members = [rank] if inside else [f["rank"] for f in parts.agreement.gather(_CALL)]
        try:
            with (
                parts.plane.latest() if inside else nullcontext(),
                _eval_mode(parts.model),
                torch.no_grad(),
            ):
                self.share = Share(members=members, rank=rank)
                yield
        finally:
            self.share = None
            parts.phases.enter(phase)

    def batches(self, loader: Any) -> EvaluationBatches:
        """This rank's share of ``loader``; inside the training loop all of it."""
        assert self.share is not None
        self._passes += 1
        return EvaluationBatches(
            demand=Demand(loader=loader, steps=None, split=not self.share.alone),
            share=self.share,
            parts=self._parts,
            seed=loader_seed(self._parts, -self._passes),
        )

    def mean(self, value: float, weight: float) -> float:
        """The mean over what all members of the evaluation computed."""
        if self.share is not None and self.share.alone:
            return pooled_mean([(value, weight)])
        mean, members = self._parts.agreement.mean(value, weight)
        if self.share is not None and members < len(self.share.members):
            self._parts.journal.note(
                "notice", "a worker was lost during evaluate(): its share is missing from the mean."
            )
        return mean


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationBatches:
    """Batches on the model's device; ``len`` is this rank's share of them."""

    demand: Demand
    share: Share
    parts: Parts
    seed: int

    def __iter__(self) -> Iterator[Any]:
        for batch in self._read():
            yield on_device(batch, self.parts.device)

    def __len__(self) -> int:
        total = length_of(self.demand.loader)
        if total is None:
            raise TypeError(f"{type(self.demand.loader).__name__} has no length")
        return len(self.share.numbers(total))

    def _read(self) -> Iterator[Any]:
        loader = self.demand.loader
        if self.share.alone:
            yield from loader
        elif is_map_style(loader, steps_given=False):
            yield from self._by_index()
        else:
            size = len(self.share.members)
            own = self.share.members.index(self.share.rank)
            yield from (batch for number, batch in enumerate(loader) if number % size == own)

    def _by_index(self) -> Iterator[Any]:
        order = order_of(self.demand, self.parts, None, f"{_CALL}'s batches")
        feed = MapFeed(self.demand.loader, order, seed=self.seed)
        own = self.share.numbers(len(order))
        feed.prefetch(own)
        for number in own:
            yield feed.get(number)
        feed.close()


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
