"""The types of one run: the user's choice for a model with parameters of given types.

Contradictions are refused here, naming the two and the remedy. Says what holds; does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from paceline.errors import UsageError
from paceline.gradients.precision import bf16, fp16, fp32
from paceline.gradients.precision.choice import AUTO, Choice
from paceline.gradients.precision.loss_scale import UNSCALED, LossScale, dynamic_scale
from paceline.gradients.precision.mode import SIXTEEN_BIT, Mode, Types

_MODES = {module.MODE.name: module.MODE for module in (fp32, bf16, fp16)}
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Precision:
    """``accumulate``: the type that micro-batches are added up in, ``reduce``: in which gradients
    cross the wire, both None if that is :func:`wide` of each parameter's. ``scale``: to begin with."""

    mode: Mode = fp32.MODE
    scale: LossScale = UNSCALED
    accumulate: torch.dtype | None = None
    reduce: torch.dtype | None = None


PLAIN = Precision()
"""Everything in the model's own types."""


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type that gradients and masters of parameters of ``dtype`` have: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def precision_for(choice: Choice, parameters: Iterable[torch.dtype]) -> Precision:
    """The types that ``choice`` means for a model with ``parameters`` of these types.

    Raises UsageError for what cannot work together.
    """
    types = frozenset(parameters)
    mode = _MODES[choice.precision]
    if refusal := mode.refusal(types):
        raise UsageError(refusal)
    return Precision(
        mode=mode,
        scale=_scale(choice, mode.computes(types)),
        accumulate=_narrow("accumulate_dtype", choice.accumulate_dtype, types),
        reduce=_narrow("reduce_dtype", choice.reduce_dtype, types),
    )


def _scale(choice: Choice, computes: Types) -> LossScale:
    asked, needed = choice.loss_scale, torch.float16 in computes
    if asked is None or (asked == AUTO and not needed):
        return UNSCALED
    if not needed:
        raise UsageError(
            f"loss_scale={asked!r} and precision={choice.precision!r} cannot work together: nothing is "
            "computed in fp16, and no other type needs a scale. Leave loss_scale out, or use "
            "precision='fp16'."
        )
    return dynamic_scale() if isinstance(asked, str) else LossScale(value=asked)


def _narrow(field: str, word: str | None, types: Types) -> torch.dtype | None:
    """The type if it is narrower than the usual one, else None."""
    if word is None:
        return None
    if torch.float64 in types:
        raise UsageError(
            f"{field}={word!r} and float64 parameters cannot work together: their gradients would be "
            f"rounded. Leave {field} out (float64 stays float64), or use model.float()."
        )
    dtype = _TYPES[word]
    return dtype if dtype in SIXTEEN_BIT else None
