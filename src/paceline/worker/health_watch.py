"""Looks at the gradients of every so many windows: records what it sees, and warns of what matters.

Sees this worker's own gradient of a window, whole, before anything of it is exchanged. What is looked
at is :mod:`paceline.gradients.health`; here is when, and what is said about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from paceline.gradients.health import Health, Shares, examine
from paceline.worker.parts import Parts
from paceline.worker.plane import Contribution

LOST = 0.05
"""Share of a gradient's elements whose loss is worth a warning."""
NOISE = 2.0**-20
"""A gradient so much smaller than the largest is rounding, as that of a bias before batch norm."""
FEWEST = 2
"""Fewer elements than that are an accident."""

_END_OF_FP32 = "That is where fp32 ends, too: multiply the loss by a constant that brings it back."


class HealthWatch:
    """Looks at every ``every``-th window."""

    def __init__(self, parts: Parts, every: int) -> None:
        self._parts = parts
        self._every = every
        self._windows = 0
        self._warned: set[tuple[str, str]] = set()
        names = {id(one): name for name, one in parts.model.named_parameters()}
        self._trained = [(names[id(one)], one) for one in parts.trained]
        parts.moments.unsent.append(self._is_due)
        parts.moments.computed.listen(self._computed)

    def _is_due(self) -> bool:
        return self._windows % self._every == 0

    def _computed(self, contribution: Contribution) -> None:
        if self._is_due() and contribution.weight > 0:
            self._look(contribution.weight / contribution.unit)
        self._windows += 1

    def _look(self, divisor: float) -> None:
        scale = self._parts.plane.loss_scale()
        seen = [(name, _values(one.grad)) for name, one in self._trained if one.grad is not None]
        healths = examine([gradient for _, gradient in seen], divisor=divisor, scale=scale)
        clock = self._parts.plane.position().clock
        noise = NOISE * max((health.norm for health in healths), default=0.0)
        for (name, _), health in zip(seen, healths, strict=True):
            self._parts.journal.health(name, health, clock=clock, scale=scale)
            for kind, text in warnings(health, scale=scale):
                if health.norm > noise or not kind.endswith("lost"):
                    self._warn(name, kind, text)

    def _warn(self, name: str, kind: str, text: str) -> None:
        if (name, kind) not in self._warned:
            self._warned.add((name, kind))
            self._parts.journal.note("health", f"gradient of {name}: {text}")


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def warnings(health: Health, *, scale: float) -> Iterator[tuple[str, str]]:
    """``(kind, sentence with the remedy)`` for each thing that is wrong with a gradient."""
    if health.non_finite:
        yield (
            "non-finite",
            f"{health.non_finite} of {health.elements} elements are not finite; the window is "
            "skipped. If that goes on: a smaller lr, or a look at divisions and logarithms in the loss.",
        )
    if health.zeros == 1.0:
        yield (
            "zero",
            "exactly zero everywhere: the loss does not depend on it here (a dead ReLU, a detached "
            "input, a mask), or it has underflowed already.",
        )
    yield from _of_type("fp16", health.scaled_fp16, health, scale)
    yield from _of_type("bf16", health.scaled_bf16, health, scale)


def _of_type(name: str, shares: Shares, health: Health, scale: float) -> Iterator[tuple[str, str]]:
    under = "" if scale == 1.0 else f" even under the loss scale {scale:g}"
    largest = f"(largest {health.largest:.1e})"
    if shares.lost > LOST and shares.lost * health.elements >= FEWEST:
        remedy = _END_OF_FP32 if name == "bf16" else _raised(health, scale)
        yield (
            f"{name} lost",
            f"{shares.lost:.0%} of its non-zero elements would become zero as {name}{under} {largest}. "
            f"{remedy}",
        )
    if shares.overflow > 0:
        remedy = _END_OF_FP32 if name == "bf16" else _lowered(health)
        yield (
            f"{name} overflow",
            f"{shares.overflow:.2%} of its elements would overflow as {name}{under} {largest}. {remedy}",
        )


def _raised(health: Health, scale: float) -> str:
    """A power of two that brings the largest element to about 2^14, two octaves below fp16's end."""
    if 0 < health.largest < math.inf:
        fitting = 14 - math.ceil(math.log2(health.largest))
        if 2.0**fitting > 2 * scale:
            return (
                "Reduce in fp32 (the default); for fp16 compute take loss_scale='dynamic', or up to "
                f"2**{fitting}; or precision='bf16'."
            )
    return "No loss scale helps, its magnitudes are too far apart: reduce in fp32, or precision='bf16'."


def _lowered(health: Health) -> str:
    if health.fp16.overflow > 0:
        return "Take precision='bf16' or fp32, or a smaller loss."
    return "Take loss_scale='dynamic', which lowers it, or a smaller number."
