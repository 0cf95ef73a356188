"""Where a worker begins: at nothing, or where a checkpoint left off. A plain holder: it decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from paceline.worker.plane import Position

_START = Position()


@dataclass(frozen=True, kw_only=True, slots=True)
class Beginning:
    """``position``: where the group stood, ``loss_scale``: what a dynamic one was, ``limit``: the state
    of the relative one on norms (None: none kept). ``compressed``: what compression keeps of this
    worker, ``replica`` what one of its own does. ``prepare()``: gives model and optimizer their
    state; called when the group is joined and nothing is compared yet.
    """

    position: Position = _START
    loss_scale: float | None = None
    limit: list[float] | None = None
    compressed: Mapping[str, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    prepare: Callable[[], None] = lambda: None
    replica: Mapping[str, Any] = field(default_factory=dict)


ANEW = Beginning()
