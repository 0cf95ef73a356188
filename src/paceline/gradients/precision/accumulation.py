"""In which type the gradients of a window's micro-batches are added up.

A 16-bit parameter's ``.grad`` is float32 here: autograd widens each gradient before it adds it. An
accumulator that shall be narrower is rounded after each addition, which has the same bits as adding
in that type (and saves no memory). Knows no windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from paceline.errors import UsageError
from paceline.gradients.precision.mode import SIXTEEN_BIT
from paceline.gradients.precision.plan import wide

UNIT_ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
_ROUNDING_RMS = math.sqrt(1 / 3 * 3 / 8 / math.log(2))  # E[error^2] E[1 / mantissa^2]
MANY = 4
"""More micro-batches than this in a 16-bit accumulator are worth a notice."""


class Accumulation:
    """Holds ``parameters`` to their accumulators until :meth:`close`. ``narrow``: as said above."""

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], narrow: torch.dtype | None
    ) -> None:
        self._sixteen_bit = [one for one in parameters if one.dtype in SIXTEEN_BIT]
        for one in self._sixteen_bit:
            _expect(one, wide(one.dtype))
        self._handles: list[Any] = []
        if narrow is not None:
            hook = partial(_round, narrow)
            self._handles = [
                one.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
                for one in parameters
            ]

    def close(self) -> None:
        """Give the parameters back as they were found, without gradients."""
        for handle in self._handles:
            handle.remove()
        for one in self._sixteen_bit:
            _expect(one, one.dtype)
        self._handles, self._sixteen_bit = [], []


def expected_error(narrow: torch.dtype, micro_batches: int) -> tuple[float, float]:
    """Relative error of a sum of ``micro_batches`` alike terms: (root mean square, at worst).

    With unit roundoff u, recursive summation of k numbers loses at most (k - 1) u of the sum of their
    sizes (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002, section 4.2). Rounding
    errors that are independent (Higham and Mary, SIAM J. Sci. Comput. 41, 2019) and uniform within half
    a unit in the last place have a root mean square of 0.42 u of the partial sum that they round (mean
    over mantissas distributed by Benford's law); the j-th of k partial sums is j / k of the result. Once
    k u nears 1 terms vanish altogether, and the error is larger than that.
    """
    unit, k = UNIT_ROUNDOFF[narrow], micro_batches
    partial_sums = math.sqrt(sum(j * j for j in range(2, k + 1))) / k
    return _ROUNDING_RMS * unit * partial_sums, (k - 1) * unit


def _expect(parameter: torch.nn.Parameter, dtype: torch.dtype) -> None:
    if not hasattr(parameter, "grad_dtype"):
        raise UsageError(
            f"16-bit parameters need gradients in float32, which torch {torch.__version__} cannot give "
            "them (Tensor.grad_dtype is missing). Use a newer torch, or model.float() with "
            "precision='bf16' or 'fp16'."
        )
    parameter.grad = None
    parameter.grad_dtype = dtype


def _round(narrow: torch.dtype, parameter: torch.Tensor) -> None:
    if parameter.grad is not None:
        with torch.no_grad():
            parameter.grad.copy_(parameter.grad.to(narrow))
