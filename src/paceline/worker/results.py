"""What ``Worker.step`` returns, and numbers as users give them. Knows nothing of how they came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.errors import bad_value
from paceline.values import lean


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What became of one micro-batch, and of its window if this one ended it.

    ``window_ended``: gradients were exchanged in this call; the fields below then speak of that
    exchange, otherwise ``applied`` is False and ``norm`` None. ``applied``: an update holds this
    worker's gradients; ``reason`` says why, or why not. ``norm``: total gradient norm before
    clipping. ``version``: updates the parameters have seen, as far as this worker knows. ``scale``:
    the loss scale of this window.
    """

    window_ended: bool
    applied: bool
    reason: str
    norm: float | None
    version: int
    scale: float = 1.0


def as_number(name: str, value: Any) -> float:
    """``value`` as a float. Raises UsageError that names it if it is not a single number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise bad_value(name, value, "a number, or a tensor of one element") from None
