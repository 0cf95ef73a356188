"""Tensors of the model that no optimizer trains: buffers and frozen parameters.

They start as rank 0's, and buffers (batch-norm statistics) are agreed when a pass has ended:
floating ones become the mean weighted by each rank's samples, whole numbers the largest, a running
variance that of all ranks' samples together. A rank whose statistics a NaN has ruined is left out of
it. Only what differs travels. Knows nothing of windows or strategies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from paceline.worker.agreement import Agreement

_DIGEST_BYTES = 16
_CHUNK_BYTES = 8 * 2**20


def untrained(model: nn.Module, trained: Iterable[nn.Parameter]) -> list[torch.Tensor]:
    """The model's parameters outside ``trained``, then its buffers, each once."""
    known = {id(parameter) for parameter in trained}
    frozen = [p.data for p in model.parameters() if id(p) not in known]
    return [*frozen, *model.buffers()]


def digests(model: nn.Module) -> list[bytes]:
    """A short digest of each buffer's bytes, in the model's order."""
    return [
        hashlib.blake2b(_bytes_of(buffer), digest_size=_DIGEST_BYTES).digest()
        for buffer in model.buffers()
    ]


def parameter_digest(model: nn.Module) -> str:
    """SHA-256 over all parameters' bytes in the model's order, as hexadecimal text."""
    total = hashlib.sha256()
    for parameter in model.parameters():
        total.update(_bytes_of(parameter))
    return total.hexdigest()


def agree(
    model: nn.Module, agreement: Agreement, everyone: Sequence[Sequence[bytes]], weight: float
) -> None:
    """Make all ranks' buffers equal. ``everyone``: each rank's :func:`digests`, in rank order.

    ``weight``: samples this rank's statistics have seen. Must be called by all live ranks.
    """
    variance_of = _variances_of_means(model)
    means: dict[int, list[torch.Tensor]] = {}  # the ranks' own, kept for the variance they go with
    for index, buffer in enumerate(model.buffers()):
        own_means = means.pop(id(buffer), None)
        if own_means is None and len({own[index] for own in everyone}) == 1:
            continue
        ranks, weights = _of_all_ranks(buffer, agreement, weight)
        if id(buffer) in variance_of:
            means[variance_of[id(buffer)]] = ranks
        with torch.no_grad():
            if own_means is None:
                buffer.copy_(combined(ranks, weights))
            else:
                buffer.copy_(combined_variance(ranks, own_means, weights))


def _variances_of_means(model: nn.Module) -> dict[int, int]:
    """Which running variance belongs to each running mean, which comes before it; by identity."""
    norms = [one for one in model.modules() if isinstance(one, _NormBase)]
    return {id(norm.running_mean): id(norm.running_var) for norm in norms}


def mean_of_variances(model: nn.Module) -> dict[str, str]:
    """Which running mean each running variance is around; by their names in the state_dict."""
    norms = [name for name, one in model.named_modules() if isinstance(one, _NormBase)]
    prefixes = [f"{name}." if name else "" for name in norms]
    return {f"{prefix}running_var": f"{prefix}running_mean" for prefix in prefixes}


def _of_all_ranks(
    buffer: torch.Tensor, agreement: Agreement, weight: float
) -> tuple[list[torch.Tensor], list[float]]:
    """The ranks' values of one buffer, and their weights."""
    data = bytes(_bytes_of(buffer))
    pieces: list[list[bytes]] = []
    weights: list[float] = []
    for start in range(0, len(data), _CHUNK_BYTES):
        facts = agreement.gather(
            "the end of batches", part=data[start : start + _CHUNK_BYTES], weight=weight
        )
        pieces.append([fact["part"] for fact in facts])
        weights = [fact["weight"] for fact in facts]
    ranks = [_tensor_of(b"".join(parts), buffer) for parts in zip(*pieces, strict=True)]
    return ranks, weights


def combined(values: Sequence[torch.Tensor], weights: Sequence[float]) -> torch.Tensor:
    """The ranks' ``values`` of one buffer as one: weighted mean, or the largest whole number.

    Where some ranks' values are all finite, only those count.
    """
    if not values[0].is_floating_point() and not values[0].is_complex():
        return torch.stack(list(values)).amax(dim=0)
    sound = [place for place, value in enumerate(values) if bool(value.isfinite().all())]
    if sound:
        values, weights = [values[i] for i in sound], [weights[i] for i in sound]
    total = sum(weights)
    if total <= 0:
        return values[0]
    wide = torch.complex128 if values[0].is_complex() else torch.float64
    summed = sum(
        (
            value.to(wide) * weight
            for value, weight in zip(values, weights, strict=True)
            if weight > 0
        ),
        start=torch.zeros((), dtype=wide),
    )
    return (summed / total).to(values[0].dtype)


def combined_variance(
    variances: Sequence[torch.Tensor], means: Sequence[torch.Tensor], weights: Sequence[float]
) -> torch.Tensor:
    """The variance of the ranks' samples together: the mean of their variances plus the variance of
    their means (law of total variance). In float64."""
    mean = combined([one.double() for one in means], weights)
    pairs = zip(variances, means, strict=True)
    around = [variance.double() + (own.double() - mean).square() for variance, own in pairs]
    return combined(around, weights)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    values: Any = flat.view(torch.uint8).numpy()
    return memoryview(values)


def _tensor_of(data: bytes, like: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=like.dtype).reshape(like.shape)
