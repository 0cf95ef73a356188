"""What the user's words mean for a model, what contradicts itself, and how it is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.errors import UsageError
from paceline.gradients.precision.accumulation import expected_error
from paceline.gradients.precision.choice import Choice
from paceline.gradients.precision.described import described, narrow_accumulation
from paceline.gradients.precision.plan import PLAIN, Precision, precision_for

FP32, FP64, FP16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16


def plan(*types: torch.dtype, **words: Any) -> Precision:
    return precision_for(Choice(**words), types or [FP32])


@pytest.mark.parametrize(
    ("types", "words", "both"),
    [
        ([FP64], {"precision": "bf16"}, r"precision='bf16' and float64.*model\.float\(\)"),
        ([BF16], {"precision": "bf16"}, r"precision='bf16' and 16-bit.*precision='fp32'"),
        ([FP32, FP16], {"precision": "fp16"}, "precision='fp16' and 16-bit"),
        ([FP32], {"loss_scale": "dynamic"}, "loss_scale='dynamic' and precision='fp32'"),
        ([FP32], {"precision": "bf16", "loss_scale": 8.0}, r"loss_scale=8\.0 and precision='bf16'"),
        ([FP64], {"reduce_dtype": "fp32"}, "reduce_dtype='fp32' and float64"),
        ([FP64], {"accumulate_dtype": "bf16"}, "accumulate_dtype='bf16' and float64"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_naming_both(
    types: list[torch.dtype], words: dict[str, Any], both: str
) -> None:
    with pytest.raises(UsageError, match=f"{both}.*"):
        plan(*types, **words)


def test_fp16_has_a_dynamic_scale_unless_told_otherwise() -> None:
    assert plan(precision="fp16").scale.dynamic
    assert plan(FP16).scale.dynamic, "parameters in fp16 compute in fp16"
    assert not plan(precision="fp16", loss_scale=None).scale.dynamic
    constant = plan(precision="fp16", loss_scale=128.0).scale
    assert (constant.value, constant.dynamic) == (128.0, False)
    for words in ({}, {"precision": "bf16"}, {"loss_scale": None}):
        assert plan(**words).scale == PLAIN.scale
    assert plan(BF16).scale == plan(FP64).scale == PLAIN.scale


def test_the_usual_types_need_no_rounding() -> None:
    assert plan(reduce_dtype="fp32", accumulate_dtype="fp32") == PLAIN
    assert plan(reduce_dtype="bf16").reduce == BF16
    assert plan(BF16, accumulate_dtype="fp16").accumulate == FP16


@pytest.mark.parametrize(
    ("types", "words", "said"),
    [
        ([FP64], {}, "compute, gradients, accumulation, reduction and parameters in float64"),
        ([FP32], {"precision": "fp16"}, (
            "compute in float16, gradients, accumulation, reduction and parameters in float32; "
            "loss scale 65536 at first, dynamic"
        )),
        ([BF16], {}, (
            "compute and parameters in bfloat16, gradients, accumulation, reduction and masters in "
            "float32"
        )),
        ([FP32], {"reduce_dtype": "fp16", "accumulate_dtype": "bf16"}, (
            "compute, gradients and parameters in float32, accumulation in bfloat16, reduction in "
            "float16"
        )),
    ],
)  # fmt: skip
def test_effective_types_are_said(
    types: list[torch.dtype], words: dict[str, Any], said: str
) -> None:
    assert described(plan(*types, **words), types) == said


def test_a_16_bit_accumulator_over_many_micro_batches_is_worth_a_notice() -> None:
    narrow = plan(accumulate_dtype="bf16")
    assert narrow_accumulation(narrow, 4) == narrow_accumulation(PLAIN, 64) == ""
    assert "64 micro-batches are accumulated in bfloat16" in narrow_accumulation(narrow, 64)
    assert "about 0.8%" in narrow_accumulation(narrow, 64)


@pytest.mark.parametrize("terms", [2, 16, 64])
def test_the_expected_error_is_what_summation_has(terms: int) -> None:
    values = torch.rand(20_000, terms, generator=torch.Generator().manual_seed(0), dtype=FP64)
    values = (values * 1.6 + 0.2).to(BF16)
    total = values[:, 0]
    for term in range(1, terms):
        total = total + values[:, term]
    truth = values.double().sum(1)
    measured = float(((total.double() - truth) / truth).square().mean().sqrt())
    likely, worst = expected_error(BF16, terms)
    assert likely == pytest.approx(measured, rel=0.5)
    assert measured < worst
