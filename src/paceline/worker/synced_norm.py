"""Batch norm over the samples that all ranks have at a moment: statistics and their gradients.

Ranks bring counts, means and sums of squares, and weigh by samples: uneven batches, a single sample
and none at all are right without a special case. All of them see every meeting, so their running
statistics have the same bits. Knows no process group, plane or window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.worker.meetings import BACKWARD, FORWARD, Gather, Meetings, Subject


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooled:
    """Per channel, over all ranks' samples (float64): ``squares`` are of deviations from the mean."""

    count: float
    mean: torch.Tensor
    squares: torch.Tensor


def pool(shares: Sequence[torch.Tensor]) -> Pooled:
    """The ranks' ``[count, means, sums of squared deviations]`` as one.

    Chan, Golub & LeVeque (1979): nothing is lost where the mean is much larger than the spread.
    """
    counts = torch.stack([share[0] for share in shares]).unsqueeze(1)
    means, squares = torch.stack([share[1:] for share in shares]).chunk(2, dim=1)
    count = float(counts.sum())
    mean = (counts * means).sum(dim=0) / max(count, 1.0)
    between = counts * (means - mean).square()
    return Pooled(count=count, mean=mean, squares=(squares + between).sum(dim=0))


class SyncedNorms:
    """The batch-norm ``layers`` of one rank's model, in the model's order, joined with the others'.

    ``gather`` as in :class:`Meetings`. Their ``forward`` is replaced in the instances only; modules,
    keys and classes stay the user's. :meth:`remove` puts it back.
    """

    def __init__(self, layers: Sequence[_BatchNorm], gather: Gather) -> None:
        self._layers = layers
        self._pooled: Pooled | None = None
        self.meetings = Meetings(gather, self._witness)
        # It waits for others: nothing to compile.
        self.normalise = torch.compiler.disable(_Normalise.apply)  # type: ignore[no-untyped-call]
        for place, layer in enumerate(layers):
            vars(layer)["forward"] = partial(_forward, self, place, layer)

    def remove(self) -> None:
        """Plain batch norm again."""
        for layer in self._layers:
            vars(layer).pop("forward", None)

    @property
    def open(self) -> bool:
        """Whether the other ranks are sure to take part."""
        return self.meetings.open

    def statistics(self, place: int, own: torch.Tensor) -> tuple[int, Pooled]:
        """Of all ranks' samples in layer ``place``, with the number that their backward needs."""
        number, _ = self.meetings.attend(Subject(kind=FORWARD, key=place), own)
        assert self._pooled is not None
        return number, self._pooled  # of this meeting: it was the last one

    def totals(self, number: int, own: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks that go backward through the forward of meeting ``number``."""
        _, shares = self.meetings.attend(Subject(kind=BACKWARD, key=number), own)
        return torch.stack(shares).sum(dim=0)

    def _witness(self, subject: Subject, shares: Sequence[torch.Tensor]) -> None:
        if subject.kind == FORWARD:
            self._pooled = pool(shares)
            _track(self._layers[subject.key], self._pooled)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the model (for an average of weights, say) is nobody's replica."""
        return (Unlinked, ())


class Unlinked:
    """What a copied or pickled model's layers have in place of :class:`SyncedNorms`."""

    open = False


def _forward(
    norms: SyncedNorms, place: int, layer: _BatchNorm, inputs: torch.Tensor
) -> torch.Tensor:
    if not (norms.open and layer.training):
        plain: torch.Tensor = _BatchNorm.forward(layer, inputs)
        return plain
    layer._check_input_dim(inputs)  # type: ignore[no-untyped-call]
    synced: torch.Tensor = norms.normalise(
        inputs, layer.weight, layer.bias, norms, place, layer.eps
    )
    return synced


class _Normalise(torch.autograd.Function):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var over all ranks' samples.

    Ioffe & Szegedy (2015); both passes compute in float32 at least.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        norms: SyncedNorms,
        place: int,
        eps: float,
    ) -> torch.Tensor:
        values = inputs.to(_wide(inputs.dtype))
        number, pooled = norms.statistics(place, _own_statistics(values))
        if pooled.count == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training: all workers together have "
                f"one, in an input of shape {tuple(inputs.shape)}."
            )
        mean = pooled.mean.to(values)
        inverse = (pooled.squares / max(pooled.count, 1.0) + eps).rsqrt().to(values)
        ctx.save_for_backward(inputs, weight, mean, inverse)
        ctx.norms, ctx.number, ctx.count = norms, number, max(pooled.count, 1.0)
        outputs = (values - _along(mean, values)).mul_(_along(inverse, values))
        if weight is not None:
            outputs.mul_(_along(weight, values))
        if bias is not None:
            outputs.add_(_along(bias, values))
        return outputs.to(inputs.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        inputs, weight, mean, inverse = ctx.saved_tensors
        normal = (inputs.to(mean.dtype) - _along(mean, inputs)).mul_(_along(inverse, inputs))
        gradient = gradients[0].to(mean.dtype)
        dims = _but_channels(inputs)
        to_bias, to_weight = gradient.sum(dims), (gradient * normal).sum(dims)
        own = torch.cat([to_bias, to_weight]).to("cpu", torch.float64)
        means = ctx.norms.totals(ctx.number, own).div_(ctx.count).to(mean)
        of_gradient, of_product = (_along(one, inputs) for one in means.chunk(2))
        scale = inverse if weight is None else inverse * weight.to(mean.dtype)
        indirect = normal.mul_(of_product).add_(of_gradient)  # through the mean and the variance
        to_inputs = (gradient - indirect).mul_(_along(scale, inputs))
        return (
            to_inputs.to(inputs.dtype),
            to_weight.to(weight.dtype) if ctx.needs_input_grad[1] else None,
            to_bias.to(weight.dtype) if ctx.needs_input_grad[2] else None,
            None, None, None,
        )  # fmt: skip


def _own_statistics(values: torch.Tensor) -> torch.Tensor:
    """``[count, means, sums of squared deviations]`` of this rank's samples, as a share."""
    channels = values.shape[1]
    count = values.numel() // channels
    if count == 0:
        return torch.zeros(1 + 2 * channels, dtype=torch.float64)
    variance, mean = torch.var_mean(values, _but_channels(values), correction=0)
    both = torch.cat([mean, variance]).to("cpu", torch.float64)
    both[channels:] *= count
    return torch.cat([torch.tensor([float(count)], dtype=torch.float64), both])


def _track(layer: _BatchNorm, pooled: Pooled) -> None:
    """Move the running statistics as plain batch norm would, had it seen all samples.

    A batch with a NaN or an infinity leaves no trace in them: its step is skipped too.
    """
    if not layer.track_running_stats or layer.running_mean is None or pooled.count < 2:
        return
    if not math.isfinite(float(pooled.squares.sum())):
        return
    assert layer.running_var is not None
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked.add_(1)
    share = layer.momentum
    if share is None:  # the mean of all batches so far
        share = 1.0 / float(layer.num_batches_tracked)
    variance = pooled.squares / (pooled.count - 1)
    with torch.no_grad():
        for running, now in ((layer.running_mean, pooled.mean), (layer.running_var, variance)):
            running.mul_(1 - share).add_(now.to(running), alpha=share)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _but_channels(inputs: torch.Tensor) -> list[int]:
    return [dim for dim in range(inputs.dim()) if dim != 1]


def _along(per_channel: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """``per_channel`` in a shape that broadcasts along the channels of ``inputs``."""
    return per_channel.reshape(-1, *(1,) * (inputs.dim() - 2))
