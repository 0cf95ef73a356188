"""What a worker makes of its gradient before it pushes it, where pushes are applied one by one.

The per-push half of ``recipe="stable"``: the gradient's mean is taken, clipped relative to this
worker's earlier ones, and joined with what this worker keeps of them (momentum). All in place, in the
region that is pushed, between backward and the message. A window whose gradient is not finite
reaches none of it. Knows neither optimizers nor replies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import torch

from paceline.gradients.norm_limit import NormLimit
from paceline.gradients.norms import sum_of_squares
from paceline.transport.messages import Decided, Push

OVERFLOWED = "all parameters together (the norm overflowed)"


class Memory(Protocol):
    """What a worker keeps of its earlier gradients, and makes of the next one with it.

    ``keeps_state``: the server's optimizer begins without the state of the user's, which is kept here.
    """

    keeps_state: bool

    def turn(self, used: bytes) -> None:
        """In place, the gradients of the ``used`` parameters (one byte each) into what is pushed."""

    def forget(self) -> None:
        """Begin again: what was pushed last was not applied."""

    def show(self) -> None:
        """Let the user's optimizer hold what is kept here."""

    def state(self) -> dict[str, dict[str, Any]]:
        """What is kept, by parameter name, as the user's optimizer would hold it."""

    def servers(self, group: dict[str, Any]) -> dict[str, Any]:
        """The hyper-parameters of the server's optimizer, of the user's ``group``."""


class NoMemory:
    """Nothing is kept: gradients are only clipped, and the server's optimizer is the user's."""

    keeps_state = False

    def turn(self, used: bytes) -> None:
        return

    def forget(self) -> None:
        return

    def show(self) -> None:
        return

    def state(self) -> dict[str, dict[str, Any]]:
        return {}

    def servers(self, group: dict[str, Any]) -> dict[str, Any]:
        return group


class Unrefined:
    """Gradients are pushed as they are, and the server's optimizer is the user's."""

    keeps_state = False
    clips = False

    def refined(self, push: Push) -> Push:
        return push

    def decided(self, reply: Decided) -> float | None:
        return reply.norm

    def show(self) -> None:
        return

    def state(self) -> dict[str, Any]:
        return {}

    def servers(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return groups


class OwnGradient:
    """``views``: the gradient of each parameter, in the region."""

    clips = True

    def __init__(self, views: Sequence[torch.Tensor], limit: NormLimit, memory: Memory) -> None:
        self._views = views
        self._limit = limit
        self._memory = memory
        self._norm: float | None = None
        self.keeps_state = memory.keeps_state

    def refined(self, push: Push) -> Push:
        """``push`` as it is to be sent, the region changed accordingly."""
        self._norm = None
        if push.weight == 0 or push.bad:
            return push
        divisor = push.weight / push.unit
        norm, limit = push.norm / divisor, self._limit.now
        if limit is not None and not math.isfinite(norm):
            return msgspec.structs.replace(push, bad=OVERFLOWED)
        self._norm = norm
        self._limit.feed(norm)
        gradients = [view for view, used in zip(self._views, push.used, strict=True) if used]
        _scale(gradients, 1 / divisor, _clipped(norm, limit))
        self._memory.turn(push.used)
        length = math.sqrt(sum(map(sum_of_squares, gradients)))
        return msgspec.structs.replace(push, unit=push.weight, norm=length)

    def decided(self, reply: Decided) -> float | None:
        """The norm of this worker's gradient if it was applied, before clipping; else None."""
        if reply.applied:
            return self._norm
        if self._norm is not None:
            self._memory.forget()
        return None

    def show(self) -> None:
        self._memory.show()

    def state(self) -> dict[str, Any]:
        """For this worker's part of a checkpoint."""
        return {"limit": self._limit.state, "optimizer": self._memory.state()}

    def servers(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The hyper-parameters of the server's optimizer, of the user's ``groups``."""
        return list(map(self._memory.servers, groups))


def _clipped(norm: float, limit: float | None) -> float:
    """What a gradient of ``norm`` is multiplied by: torch's formula."""
    return 1.0 if limit is None else min(1.0, limit / (norm + 1e-6))


def _scale(gradients: list[torch.Tensor], *factors: float) -> None:
    for factor in factors:
        if factor != 1 and gradients:
            torch._foreach_mul_(gradients, factor)
