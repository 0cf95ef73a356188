"""The types of a run in words: what the start line and the trace say."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from paceline.gradients.precision.accumulation import MANY, expected_error
from paceline.gradients.precision.loss_scale import LossScale
from paceline.gradients.precision.mode import SIXTEEN_BIT
from paceline.gradients.precision.plan import Precision, wide


def described(precision: Precision, parameters: Iterable[torch.dtype]) -> str:
    """In which types numbers are, from forward to update; stages of one type together."""
    own = sorted(set(parameters), key=str)
    high = [wide(dtype) for dtype in own]
    stages = {
        "compute": sorted(precision.mode.computes(frozenset(own)), key=str),
        "gradients": high,
        "accumulation": [precision.accumulate] if precision.accumulate else high,
        "reduction": [precision.reduce] if precision.reduce else high,
        "parameters": own,
    }
    if SIXTEEN_BIT & set(own):
        stages["masters"] = high
    return "; ".join([_together(stages), *_scale(precision.scale)])


def narrow_accumulation(precision: Precision, micro_batches: int) -> str:
    """What a 16-bit accumulator loses over so many micro-batches, or "" if that is little."""
    narrow = precision.accumulate
    if narrow is None or micro_batches <= MANY:
        return ""
    likely, worst = expected_error(narrow, micro_batches)
    return (
        f"{micro_batches} micro-batches are accumulated in {_name(narrow)}: expect relative errors of "
        f"about {likely:.1%} in the gradient, {worst:.1%} at worst. Leave accumulate_dtype out to "
        "accumulate in float32."
    )


def _together(stages: dict[str, list[torch.dtype]]) -> str:
    of_type: dict[str, list[str]] = {}
    for stage, types in stages.items():
        of_type.setdefault("+".join(dict.fromkeys(map(_name, types))), []).append(stage)
    return ", ".join(f"{_listed(names)} in {types}" for types, names in of_type.items())


def _scale(scale: LossScale) -> list[str]:
    if scale.dynamic:
        return [f"loss scale {scale.value:g} at first, dynamic"]
    return [f"loss scale {scale.value:g}"] if scale.value != 1.0 else []


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
