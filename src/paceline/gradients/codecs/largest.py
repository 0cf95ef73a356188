"""Which values of a tensor are largest in magnitude: exactly ``count`` of them, without sorting it.

A sample says above which threshold a few more than that lie; only those are ranked (the idea of
Deep Gradient Compression, Lin et al., ICLR 2018, section 5). One pass in pieces that stay in the cache.
"""

from __future__ import annotations

import math

import torch

SAMPLE = 2**17
"""Values looked at for a threshold: 1 % of them estimate it within 3 % of the count."""

PIECE = 2**19
"""Values compared at a time."""

FEW = 2**16
"""So many values are ranked as they are."""

CERTAINTY = 4.0
"""Standard deviations by which the threshold is lower than estimated, so that enough lie above it."""


def largest(values: torch.Tensor, count: int) -> torch.Tensor:
    """Indices (int64, ascending) of the ``count`` largest magnitudes in ``values`` (flat)."""
    total = values.numel()
    if total <= FEW or 4 * count > total:
        return _ranked(values, count)
    threshold = _threshold(values, count)
    found = _above(values, threshold)
    if threshold == 0.0 and len(found) < count:
        return _filled_up(values, found, count)
    if not count <= len(found) <= total // 4:  # the sample has not shown what there is
        return _ranked(values, count)
    return found[_ranked(values[found], count)]


def _threshold(values: torch.Tensor, count: int) -> float:
    """Above it lie a few more than ``count`` values, as far as an evenly spaced sample tells."""
    # An odd spacing, so that rows of a power of two do not put the sample into a few columns.
    step = max(1, values.numel() // SAMPLE) | 1
    sample = values[::step].abs()
    expected = len(sample) * count / values.numel()
    rank = math.ceil(expected + CERTAINTY * math.sqrt(expected)) + 1
    return float(torch.topk(sample, min(rank, len(sample)), sorted=False).values.min())


def _above(values: torch.Tensor, threshold: float) -> torch.Tensor:
    """Indices of the magnitudes above ``threshold``, ascending."""
    if values.device.type != "cpu":
        return torch.nonzero(values.abs() > threshold).view(-1)
    found = [
        torch.nonzero(piece.abs() > threshold).view(-1).add_(number * PIECE)
        for number, piece in enumerate(torch.split(values, PIECE))
    ]
    return torch.cat(found)


def _ranked(values: torch.Tensor, count: int) -> torch.Tensor:
    if count >= values.numel():
        return torch.arange(values.numel(), device=values.device)
    chosen = torch.topk(values.abs(), count, sorted=False).indices
    return chosen.sort().values


def _filled_up(values: torch.Tensor, found: torch.Tensor, count: int) -> torch.Tensor:
    """All that are not zero, and zeros: among the first ``count`` values there are enough."""
    zeros = torch.nonzero(values[:count] == 0).view(-1)[: count - len(found)]
    return torch.cat([found, zeros]).sort().values
