"""The norm of a gradient and clipping by it: torch's own arithmetic, in the user's parameter order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter

import torch
from torch._utils import _flatten_dense_tensors
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

_SMALL = 2**13
"""Elements a gradient, on average."""
_MARGIN = 0.99
"""Far more than two ways of summing differ by."""

_kind = attrgetter("dtype", "device", "is_sparse")


def clip_by_norm(parameters: Sequence[torch.Tensor], clip_norm: float | None) -> float:
    """The 2-norm over all ``.grad``; they are scaled to ``clip_norm`` where that is exceeded.

    Bit-identical to ``torch.nn.utils.clip_grad_norm_``, but a norm that is not finite scales nothing,
    and one that only informs (``clip_norm=None``) is equal within rounding.
    """
    gradients = [gradient for one in parameters if (gradient := one.grad) is not None]
    alike = len(set(map(_kind, gradients))) == 1 and not gradients[0].is_sparse
    if clip_norm is None and alike:
        small = _are_small(gradients)
        return _flat_norm(gradients) if small else math.sqrt(sum(map(sum_of_squares, gradients)))
    total = _total_norm(gradients, alike)
    norm = float(total)
    if clip_norm is not None and math.isfinite(norm):
        clip_grads_with_norm_(parameters, clip_norm, total)
    return norm


def needs_no_clipping(bound: float, clip_norm: float | None) -> bool:
    """Whether a gradient with a norm of at most ``bound``, however that was measured, is surely left as
    it is: it is finite, and torch's factor ``clip_norm / (norm + 1e-6)`` is not below 1."""
    return math.isfinite(bound) and (clip_norm is None or bound + 1e-6 <= _MARGIN * clip_norm)


def sum_of_values(values: torch.Tensor) -> float:
    """In float32 at least; not finite if a value is not, or if it is too large. Of complex values their
    real and imaginary parts are summed."""
    if values.is_complex():
        values = torch.view_as_real(values)
    return values.sum(dtype=torch.promote_types(values.dtype, torch.float32)).item()


def sum_of_squares(values: torch.Tensor) -> float:
    """In float32 at least; not finite if a value is not, or if it is too large."""
    if values.is_contiguous() and values.dtype in (torch.float32, torch.float64):
        flat = values.detach().view(-1)
        return torch.dot(flat, flat).item()  # three times as fast as a norm
    wide = torch.promote_types(values.dtype, torch.float32)
    return float(torch.linalg.vector_norm(values, dtype=wide).item()) ** 2


def first_non_finite(parameters: Sequence[torch.Tensor]) -> int | None:
    """The place of the first parameter whose ``.grad`` holds a NaN or an infinity, else None."""
    for place, parameter in enumerate(parameters):
        gradient = parameter.grad
        if gradient is not None and not bool(torch.isfinite(_values(gradient)).all()):
            return place
    return None


def _total_norm(gradients: list[torch.Tensor], alike: bool) -> torch.Tensor:
    """As torch's ``get_total_norm``, which takes twice as long to find that all are of one kind."""
    if not alike:
        return get_total_norm([_values(gradient) for gradient in gradients])
    norms: tuple[torch.Tensor, ...] = torch._foreach_norm(gradients)
    total: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total


def _are_small(gradients: list[torch.Tensor]) -> bool:
    """Whether copying them costs less than a norm for each (3 microseconds)."""
    wide = gradients[0].dtype in (torch.float32, torch.float64)
    return wide and sum(map(torch.Tensor.numel, gradients)) <= len(gradients) * _SMALL


def _flat_norm(gradients: list[torch.Tensor]) -> float:
    flat: torch.Tensor = _flatten_dense_tensors(gradients)  # type: ignore[no-untyped-call]
    return math.sqrt(torch.dot(flat, flat).item())


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
