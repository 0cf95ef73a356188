"""What is trained and how, as every plane needs to know it. A plain holder: it decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from paceline.gradients.precision.plan import PLAIN, Precision
from paceline.strategies import Strategy
from paceline.worker.manifest import Trainable


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """``lr_factor`` multiplies every learning rate at each update. ``version``, ``progress``: where the
    checkpoint stood from which training goes on. ``clock_s``: monotonic. ``serving_s``: how long one
    push keeps an emulated server busy."""

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

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The trainable parameters, in the optimizer's order."""
        return [one.parameter for one in self.trainables]
