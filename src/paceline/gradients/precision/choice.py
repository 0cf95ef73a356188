"""What the user said about types, checked word by word. Knows no model and no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from paceline.errors import bad_value

WORDS = ("fp32", "bf16", "fp16")
AUTO = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The Worker's keywords. ``loss_scale`` ``"auto"``: dynamic where something is fp16, else none.
    ``reduce_dtype``, ``accumulate_dtype`` None: at least fp32, float64 stays float64."""

    precision: str = "fp32"
    loss_scale: str | float | None = AUTO
    reduce_dtype: str | None = None
    accumulate_dtype: str | None = None


def choice_from(
    *, precision: Any, loss_scale: Any, reduce_dtype: Any, accumulate_dtype: Any
) -> Choice:
    """Raises UsageError for a word that is none of those there are."""
    if precision not in WORDS:
        raise bad_value("precision", precision, _one_of(WORDS), _CASTS)
    for field, word in (("reduce_dtype", reduce_dtype), ("accumulate_dtype", accumulate_dtype)):
        if word is not None and word not in WORDS:
            raise bad_value(field, word, "None or " + _one_of(WORDS))
    return Choice(
        precision=precision,
        loss_scale=_scale(loss_scale),
        reduce_dtype=reduce_dtype,
        accumulate_dtype=accumulate_dtype,
    )


def _scale(value: Any) -> str | float | None:
    if value is None or value in (AUTO, "dynamic"):
        return value  # type: ignore[no-any-return]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise bad_value(
            "loss_scale", value, "'dynamic', 'auto', None or a number > 0",
            "A power of two changes no bit of the gradients.",
        )  # fmt: skip
    return float(value)


def _one_of(words: tuple[str, ...]) -> str:
    return "one of " + ", ".join(map(repr, words))


_CASTS = "It says in which type the forward computes; a model's own types stay as they are."
