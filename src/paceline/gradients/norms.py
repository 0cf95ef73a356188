"""The norm of a gradient and clipping by it: torch's own arithmetic, in the user's parameter order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def clip_by_norm(parameters: Sequence[torch.Tensor], clip_norm: float | None) -> float:
    """The 2-norm over all ``.grad``; they are scaled to ``clip_norm`` where that is exceeded.

    Bit-identical to ``torch.nn.utils.clip_grad_norm_``, but a norm that is not finite scales nothing.
    """
    held = [parameter for parameter in parameters if parameter.grad is not None]
    total = get_total_norm([_values(parameter) for parameter in held])
    norm = float(total)
    if clip_norm is not None and math.isfinite(norm):
        clip_grads_with_norm_(held, clip_norm, total)
    return norm


def first_non_finite(parameters: Sequence[torch.Tensor]) -> int | None:
    """The place of the first parameter whose ``.grad`` holds a NaN or an infinity, else None."""
    for place, parameter in enumerate(parameters):
        if parameter.grad is not None and not bool(torch.isfinite(_values(parameter)).all()):
            return place
    return None


def _values(parameter: torch.Tensor) -> torch.Tensor:
    gradient = parameter.grad
    assert gradient is not None
    return gradient.coalesce().values() if gradient.is_sparse else gradient
