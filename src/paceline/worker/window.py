"""One window in the making: which micro-batch is next, what it weighs, by what its loss is multiplied.

The gradient of a window is sum(w * g) over its micro-batches, built by multiplying each mean loss
by w / unit; the plane divides the sum by sum(w) / unit. A loss scale is part of the unit (unit /
scale), so whoever divides unscales. Pure arithmetic: no tensors, no clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from paceline.errors import bad_value
from paceline.worker.plane import Contribution, Window
from paceline.worker.results import StepResult


@dataclass(kw_only=True)
class OpenWindow:
    """A window from its start until its exchange. ``default_unit``: if no micro-batch sets one.

    ``spoiled``: a backward broke off in it, so its gradients are nobody's.
    """

    window: Window
    default_unit: float
    started_s: float
    handed_out: int = 0
    weight: float = 0.0
    samples: float = 0.0
    unit: float | None = None
    spoiled: bool = False
    losses: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.window.unit is not None:
            self.unit = self.window.unit / self.window.scale

    @property
    def complete(self) -> bool:
        """Whether the last micro-batch of the window was handed out."""
        return self.handed_out >= len(self.window.batches)

    def factor(self, weight: float) -> float:
        """What a micro-batch's mean loss is multiplied by. Exactly 1.0 whenever it can be."""
        if self.unit is None:
            self.unit = weight / self.window.scale
        return weight / self.unit

    def add(self, weight: float, samples: float, loss: float) -> None:
        """A micro-batch's gradient is in. ``loss``: its mean loss."""
        self.weight += weight
        self.samples += samples
        self.losses.append((weight, loss))

    def loss(self) -> float | None:
        """Weighted mean loss of the window; None if nothing was computed."""
        if not self.losses:
            return None
        if len(self.losses) == 1:
            return self.losses[0][1]
        return math.fsum(weight * loss for weight, loss in self.losses) / self.weight

    def contribution(self, *, stop: bool, total: int | None) -> Contribution:
        """What is handed in at the window's end."""
        return Contribution(
            weight=0.0 if self.spoiled else self.weight,
            unit=self.unit or self.default_unit,
            stop=stop,
            total=total,
        )


def checked_weight(weight: float | None, samples: float) -> float:
    """The micro-batch's weight: the user's, else its ``samples``. Raises UsageError."""
    if weight is None:
        return samples
    value = float(weight)
    if not 0 <= value < math.inf:
        raise bad_value(
            "weight", weight, "a number >= 0 (samples or tokens the loss averages over)"
        )
    return value


def pending(version: int, scale: float) -> StepResult:
    """The result of a micro-batch that did not end its window."""
    return StepResult(
        window_ended=False, applied=False, reason="the window goes on", norm=None, version=version,
        scale=scale,
    )  # fmt: skip
