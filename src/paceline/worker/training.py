"""What is trained and how, as every plane needs to know it. A plain holder: it decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from paceline.compression import Compression
from paceline.gradients.precision.plan import PLAIN, Precision
from paceline.recipes import PLAIN_RECIPE, Recipe
from paceline.strategies import Strategy
from paceline.worker.manifest import Trainable
from paceline.worker.warm_up import WarmUp

NO_WARM_UP = WarmUp(updates=0, workers=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """``lr_factor`` multiplies every learning rate at each update. ``version``, ``progress``: where the
    checkpoint stood from which training goes on. ``clock_s``: monotonic. ``serving_s``: how long one
    push keeps an emulated server busy. ``limit``: where the running mean of norms stands that
    gradients are clipped by; None if by none. ``compressed``: what compression keeps of this worker, as
    the checkpoint has it; ``replica``: what a replica keeps (:mod:`paceline.worker.replica_state`).
    ``far``: it is emulated as on a host of its own."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    trainables: list[Trainable]
    strategy: Strategy
    clip_norm: float | None = None
    lr_factor: float = 1.0
    clock_s: Callable[[], float] = time.monotonic
    precision: Precision = PLAIN
    version: int = 0
    progress: int = 0
    serving_s: float = 0.0
    recipe: Recipe = PLAIN_RECIPE
    warm_up: WarmUp = NO_WARM_UP
    limit: list[float] | None = None
    compress: Compression | None = None
    compressed: Mapping[str, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    replica: Mapping[str, Any] = field(default_factory=dict)
    far: bool = False

    def rate_factor(self, progress: int, window: int) -> float:
        """What learning rates are multiplied by in the update after ``progress`` loader batches."""
        return self.lr_factor * self.warm_up.factor(progress, window)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The trainable parameters, in the optimizer's order."""
        return [one.parameter for one in self.trainables]
