"""Shares and counts against what torch's own casts do to the same numbers."""

from __future__ import annotations

import math

import pytest
import torch

from paceline.gradients.health import Health, examine
from paceline.worker.health_watch import warnings

DTYPES = [torch.float32, torch.float64]


def spread(count: int = 5000, *, centre: float = -20.0, width: float = 8.0) -> torch.Tensor:
    """Magnitudes around 2^centre, both signs, some exactly zero."""
    generator = torch.Generator().manual_seed(count)
    exponents = centre + width * torch.randn(count, generator=generator)
    signs = torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1
    values = signs * torch.exp2(exponents)
    values[::7] = 0
    return values


def cast_shares(values: torch.Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """What casting turns to zero and to infinity, of what was neither."""
    some = values[(values != 0) & values.isfinite()]
    narrow = some.to(dtype)
    return float((narrow == 0).double().mean()), float(narrow.isinf().double().mean())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 1024.0, 1000.0])
@pytest.mark.parametrize("divisor", [1.0, 3.0])
def test_shares_are_those_of_a_cast(dtype: torch.dtype, scale: float, divisor: float) -> None:
    true = [spread().to(dtype), spread(900, centre=4.0).to(dtype).view(30, 30)]
    for one, health in zip(
        true,
        examine([one * divisor * scale for one in true], divisor=divisor * scale, scale=scale),
        strict=True,
    ):
        lost, overflow = cast_shares(one, torch.float16)
        assert health.fp16.lost == pytest.approx(lost, abs=2e-3)
        assert health.fp16.overflow == pytest.approx(overflow, abs=2e-3)
        lost, overflow = cast_shares(one * scale, torch.float16)
        assert health.scaled_fp16.lost == pytest.approx(lost, abs=2e-3)
        assert health.scaled_fp16.overflow == pytest.approx(overflow, abs=2e-3)
        assert (health.bf16.lost, health.bf16.overflow) == (0.0, 0.0)
        assert health.zeros == pytest.approx(float((one == 0).double().mean()))
        assert health.norm == pytest.approx(float(one.norm()), rel=1e-6)
        assert health.largest == pytest.approx(float(one.abs().max()), rel=1e-6)
        assert sum(health.histogram) == int((one != 0).sum())


def test_the_limits_to_the_last_bit() -> None:
    def shares(value: float) -> Health:
        return examine([torch.tensor([value], dtype=torch.float64)])[0]

    assert shares(2.0**-25 * 0.999).fp16.lost == 1.0
    assert shares(2.0**-25 * 1.001).fp16.lost == 0.0
    assert shares(65504.0).fp16.overflow == 0.0
    assert shares(65536.0).fp16.overflow == 1.0
    assert shares(2.0**-134 * 0.999).bf16.lost == 1.0
    assert shares(2.0**-133).bf16.lost == 0.0
    assert shares(3.38e38).bf16.overflow == 0.0
    assert shares(2.0**128).bf16.overflow == 1.0


def test_the_histogram_counts_octaves() -> None:
    (health,) = examine([torch.tensor([0.0, 1.0, 1.5, -0.25, 8.0])])
    assert (health.low, health.histogram) == (-2, (1, 0, 2, 0, 0, 1))
    (empty,) = examine([torch.zeros(4)])
    assert (empty.histogram, empty.zeros, empty.fp16.lost) == ((), 1.0, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_counted_anywhere(bad: float) -> None:
    gradient = torch.full((40_000,), 1e-3)
    gradient[[3, 30_001]] = bad
    (health,) = examine([gradient])
    assert health.non_finite == 2
    assert (health.fp16.overflow, health.fp16.lost) == (0.0, 0.0)
    assert not math.isfinite(health.norm)


@pytest.mark.parametrize("make", [torch.clone, lambda x: x.t(), lambda x: x[:, ::2]])
def test_large_ones_are_sampled_evenly_whatever_their_strides(make: object) -> None:
    values = spread(1000 * 400).view(1000, 400)
    gradient = make(values)  # type: ignore[operator]
    before = gradient.clone()
    (health,) = examine([gradient])
    assert health.sampled == 8192
    assert health.elements == gradient.numel()
    assert health.fp16.lost == pytest.approx(cast_shares(gradient, torch.float16)[0], abs=0.02)
    assert health.norm == pytest.approx(float(gradient.norm()), rel=1e-5)
    assert torch.equal(gradient, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_gradients(dtype: torch.dtype) -> None:
    (health,) = examine([torch.tensor([0.0, 1.0, -2.0], dtype=dtype)])
    assert (health.norm, health.largest) == (pytest.approx(5**0.5), 2.0)


def test_warnings_name_share_and_remedy() -> None:
    def said(values: torch.Tensor, scale: float = 1.0) -> dict[str, str]:
        (health,) = examine([values * scale], divisor=scale, scale=scale)
        return dict(warnings(health, scale=scale))

    tiny = torch.full((100,), 1e-8)
    assert "100% of its non-zero elements would become zero as fp16" in said(tiny)["fp16 lost"]
    assert "loss_scale='dynamic', or up to 2**40" in said(tiny)["fp16 lost"]
    assert said(tiny, scale=2.0**16) == {}
    assert said(torch.tensor([1e-8] + [1.0] * 15)) == {}, "one element is an accident"
    assert "bf16" not in " ".join(said(tiny))
    wide = torch.cat([tiny, torch.tensor([3e4])])
    assert "No loss scale helps" in said(wide)["fp16 lost"]
    assert "Take loss_scale='dynamic'" in said(torch.ones(3), scale=2.0**17)["fp16 overflow"]
    assert "precision='bf16'" in said(torch.full((3,), 1e5))["fp16 overflow"]
    assert "where fp32 ends" in said(torch.full((3,), 1e-42))["bf16 lost"]
    assert "dead ReLU" in said(torch.zeros(3))["zero"]
    assert (
        "1 of 3 elements are not finite" in said(torch.tensor([1.0, math.nan, 1.0]))["non-finite"]
    )
