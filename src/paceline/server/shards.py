"""The run's parameters and optimizer: real torch, over 64-byte-aligned views of one flat master.

It applies what it is told to and decides nothing. The bits are those of the plain loop: the same
optimizer class with the same flags on plain tensors, gradients summed in the order given, divided,
clipped by torch's own functions in the user's parameter order. A :class:`Shard` holds all slots
today; its verbs (join, clip, step) are separate so that several can go through them side by side.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

import torch

from paceline.errors import UsageError
from paceline.gradients.layout import FlatLayout
from paceline.gradients.norms import clip_by_norm, first_non_finite
from paceline.transport.messages import OptimizerSpec

UNSUPPORTED = {
    "LBFGS": "it evaluates the loss several times a step",
    "SparseAdam": "it needs sparse gradients",
}


class Gradients:
    """One worker's gradients: ``views`` in slot order, and one flat vector per type."""

    def __init__(self, layout: FlatLayout, memory: torch.Tensor) -> None:
        self.views = layout.views(memory)
        self.vectors = layout.vectors(memory)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One push as it goes into an update. ``used``: one byte a parameter, 1 if it has a gradient."""

    gradients: Gradients
    used: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """``norm``: of the gradient after division, before clipping. ``applied`` False: non-finite."""

    norm: float
    applied: bool


class Shard:
    """Parameters and optimizer. ``memory``: uint8 tensor with the current version, whole."""

    def __init__(
        self, *, layout: FlatLayout, initial: torch.Tensor, spec: OptimizerSpec, groups: list[int]
    ) -> None:
        self.memory = torch.zeros(layout.total_bytes, dtype=torch.uint8)
        self.memory.copy_(initial)
        self._parameters = layout.views(self.memory)
        self._optimizer = build_optimizer(spec, self._parameters, groups)

    def load_state(self, state: bytes) -> None:
        """Go on from an optimizer's ``state_dict``, as ``torch.save`` wrote it (no code in it)."""
        loaded = torch.load(io.BytesIO(state), weights_only=True)
        self._optimizer.load_state_dict(loaded)

    def state(self) -> bytes:
        """The optimizer's ``state_dict``, numbered in the user's order, for ``torch.load``."""
        buffer = io.BytesIO()
        torch.save(self._optimizer.state_dict(), buffer)
        return buffer.getvalue()

    def fits(self, used: bytes, groups: list[dict[str, Any]] | None) -> bool:
        """Whether a push with these can be meant for this model."""
        counts = len(self._parameters), len(self._optimizer.param_groups)
        return counts == (len(used), counts[1] if groups is None else len(groups))

    def set_groups(self, groups: list[dict[str, Any]]) -> None:
        """From now on the optimizer's groups have these hyper-parameters."""
        for own, given in zip(self._optimizer.param_groups, groups, strict=True):
            own.update(_tuples(given))

    def apply(
        self, parts: Sequence[Part], *, divisor: float, lr_scale: float, clip_norm: float | None
    ) -> Applied:
        """One optimizer step with the sum of ``parts``, in this order, over ``divisor``.

        The first part's gradients are overwritten. ``lr_scale`` multiplies every group's learning
        rate for this step only. If the sum overflowed, nothing changes.
        """
        self._join(parts, divisor)
        try:
            norm = clip_by_norm(self._parameters, clip_norm)
            applied = isfinite(norm) or (clip_norm is None and self._is_finite())
            if applied:
                self._step(lr_scale)
        finally:
            self._let_go()
        return Applied(norm=norm, applied=applied)

    def _join(self, parts: Sequence[Part], divisor: float) -> None:
        first, *others = parts
        for other in others:
            for total, vector in zip(first.gradients.vectors, other.gradients.vectors, strict=True):
                total.add_(vector)
        if divisor != 1:
            for total in first.gradients.vectors:
                total.div_(divisor)
        used = map(any, zip(*(part.used for part in parts), strict=True))
        for parameter, view, is_used in zip(
            self._parameters, first.gradients.views, used, strict=True
        ):
            parameter.grad = view if is_used else None

    def _step(self, lr_scale: float) -> None:
        if lr_scale == 1:
            self._optimizer.step()
            return
        groups = self._optimizer.param_groups
        rates = [group["lr"] for group in groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate * lr_scale
        try:
            self._optimizer.step()
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    def _is_finite(self) -> bool:
        """A finite gradient's norm can overflow; without clipping that harms nothing."""
        return first_non_finite(self._parameters) is None

    def _let_go(self) -> None:
        """Keep no view of a worker's region."""
        for parameter in self._parameters:
            parameter.grad = None


def build_optimizer(
    spec: OptimizerSpec, parameters: list[torch.Tensor], groups: list[int]
) -> torch.optim.Optimizer:
    """The ``torch.optim`` optimizer that ``spec`` names; ``groups[i]``: parameter i's group.

    Raises :class:`UsageError` for a class that is not in ``torch.optim`` or cannot work here.
    """
    if spec.name in UNSUPPORTED:
        raise UsageError(
            f"optimizer={spec.name}: cannot live on the server: {UNSUPPORTED[spec.name]}. "
            "Use strategy='sync:allreduce', or another optimizer."
        )
    cls = getattr(torch.optim, spec.name, None)
    if not (isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)):
        raise UsageError(
            f"optimizer={spec.name}: expected a class of torch.optim on the server plane. "
            "Use strategy='sync:allreduce', which runs your own optimizer in each worker."
        )
    given: list[dict[str, Any]] = [
        {**_tuples(hyper), "params": [p for p, g in zip(parameters, groups, strict=True) if g == i]}
        for i, hyper in enumerate(spec.groups)
    ]
    return cast("type[Any]", cls)(given)  # type: ignore[no-any-return]


def _tuples(hyper: dict[str, Any]) -> dict[str, Any]:
    """Tuples (``betas``) became lists on their way here."""
    return {key: tuple(v) if isinstance(v, list) else v for key, v in hyper.items()}
