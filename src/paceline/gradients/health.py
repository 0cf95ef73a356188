"""Where a gradient's magnitudes lie against the limits of 16-bit types: what would be lost in them.

A value whose magnitude is at most half the smallest one of a type becomes zero in it (is *lost*), one
at or beyond half a step above its largest becomes infinite. Parameters of up to 8,192 elements are
looked at whole, larger ones as 128 runs of 64 neighbours, evenly spread (a share is then good to about
0.6 % standard error, if neighbours are independent); norm, largest magnitude and the count of what is
not finite are always of all elements. Pure functions of tensors; knows no ranks and no strategies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from paceline.gradients.layout import dense_stride
from paceline.gradients.norms import sum_of_squares

RUNS = 128
RUN_ELEMENTS = 64

_LOWEST = -149  # the smallest float32 is 2^-149; what float64 has beyond is counted at the ends
_HIGHEST = 255
_ZERO, _FIRST, _NOT_FINITE = 0, 1, _HIGHEST - _LOWEST + 2
_BINS = _NOT_FINITE + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Of a type, as powers of two: magnitudes below ``2**lost`` round to zero, from ``2**overflow`` on
    they are infinite. (Between its largest number and that, a sliver of 0.05 % rounds either way.)"""

    lost: int
    overflow: int


FP16 = Limits(lost=-25, overflow=16)  # smallest 2^-24, largest 65504
BF16 = Limits(lost=-134, overflow=128)  # smallest 2^-133, largest 3.39e38


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Of a gradient in a type, among its elements that are not zero: from 0 to 1."""

    lost: float
    overflow: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """One parameter's gradient. ``zeros``: share of ``sampled`` elements that are exactly zero.

    ``histogram[i]``: how many of them have a magnitude in ``[2**(low + i), 2**(low + i + 1))``.
    ``fp16``, ``bf16``: of the gradient as it is; ``scaled_fp16``, ``scaled_bf16``: times the loss scale.
    """

    elements: int
    sampled: int
    non_finite: int
    norm: float
    largest: float
    zeros: float
    fp16: Shares
    bf16: Shares
    scaled_fp16: Shares
    scaled_bf16: Shares
    low: int
    histogram: tuple[int, ...]


def examine(
    gradients: Sequence[torch.Tensor], *, divisor: float = 1.0, scale: float = 1.0
) -> list[Health]:
    """The health of ``gradients``, as they lie there: the true ones times ``divisor``.

    ``divisor``: what a window's sum is still to be divided by, with the loss scale ``scale`` in it.
    Nothing is written to, and nothing as large as a gradient is allocated.
    """
    if not gradients:
        return []
    factor = 1.0 / divisor
    samples = [_sample(gradient.detach()) for gradient in gradients]
    magnitudes = torch.cat(samples).abs_().mul_(factor)
    lengths = [len(sample) for sample in samples]
    plain = _histograms(magnitudes, lengths)
    scaled = plain if scale == 1.0 else _histograms(magnitudes.mul_(scale), lengths)
    return [
        _judge(gradient.detach(), factor, length, *counts)
        for gradient, length, counts in zip(
            gradients, lengths, zip(plain, scaled, strict=True), strict=True
        )
    ]


def _sample(gradient: torch.Tensor) -> torch.Tensor:
    """Some elements, or all, in float32 at least."""
    wide = torch.promote_types(gradient.dtype, torch.float32)
    count = gradient.numel()
    if count <= RUNS * RUN_ELEMENTS:
        return gradient.reshape(-1).to(wide)
    in_any_order = dense_stride(gradient) == gradient.stride()
    flat = gradient if in_any_order else gradient.contiguous()
    runs = flat.as_strided((RUNS, RUN_ELEMENTS), (count // RUNS, 1))
    return runs.reshape(-1).to(wide)


def _histograms(magnitudes: torch.Tensor, lengths: Sequence[int]) -> list[list[int]]:
    """For each piece of ``magnitudes`` how many are zero, in each octave, and not finite."""
    _, exponents = torch.frexp(magnitudes)  # magnitude in [2^(exponent - 1), 2^exponent)
    bins = exponents.sub_(1 + _LOWEST).clamp_(0, _HIGHEST - _LOWEST).add_(_FIRST)
    bins.masked_fill_(magnitudes == 0, _ZERO)
    bins.masked_fill_(~torch.isfinite(magnitudes), _NOT_FINITE)
    pieces = torch.arange(len(lengths), device=magnitudes.device, dtype=bins.dtype) * _BINS
    repeats = torch.tensor(lengths, device=magnitudes.device)
    bins.add_(pieces.repeat_interleave(repeats, output_size=len(magnitudes)))
    counts = torch.bincount(bins, minlength=len(lengths) * _BINS)
    rows: list[list[int]] = counts.view(len(lengths), _BINS).tolist()
    return rows


def _judge(
    gradient: torch.Tensor, factor: float, sampled: int, plain: list[int], scaled: list[int]
) -> Health:
    low, high = torch.aminmax(gradient) if gradient.numel() else (gradient.sum(), gradient.sum())
    largest = max(abs(low.item()), abs(high.item()))
    finite = math.isfinite(largest)
    octaves = plain[_FIRST:_NOT_FINITE]
    filled = [place for place, count in enumerate(octaves) if count]
    first, last = (filled[0], filled[-1] + 1) if filled else (0, 0)
    return Health(
        elements=gradient.numel(),
        sampled=sampled,
        non_finite=0 if finite else int((~torch.isfinite(gradient)).sum()),
        norm=_norm(gradient) * factor,
        largest=largest * factor,
        zeros=plain[_ZERO] / max(1, sampled),
        fp16=_shares(plain, FP16),
        bf16=_shares(plain, BF16),
        scaled_fp16=_shares(scaled, FP16),
        scaled_bf16=_shares(scaled, BF16),
        low=first + _LOWEST,
        histogram=tuple(octaves[first:last]),
    )


def _norm(gradient: torch.Tensor) -> float:
    """By a dot product, which takes half as long, unless the square of it is out of range."""
    squares = sum_of_squares(gradient)
    if 1e-30 < squares < math.inf:
        return math.sqrt(squares)
    wide = torch.promote_types(gradient.dtype, torch.float32)
    return float(torch.linalg.vector_norm(gradient, dtype=wide))


def _shares(counts: list[int], limits: Limits) -> Shares:
    """What was not finite before is not counted as overflow of the type."""
    some = sum(counts[_FIRST:_NOT_FINITE])
    if not some:
        return Shares(lost=0.0, overflow=0.0)
    lost = sum(counts[_FIRST : max(_FIRST, limits.lost - _LOWEST + _FIRST)])
    overflow = sum(counts[limits.overflow - _LOWEST + _FIRST : _NOT_FINITE])
    return Shares(lost=lost / some, overflow=overflow / some)
