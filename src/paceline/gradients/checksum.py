"""Checksums of tensors that see every bit (the sign of a zero included) and cost little more than reading.

A tensor's bytes, as 64-bit words in rows, give the sums of the rows and of the columns (modulo 2^64);
those few numbers are hashed. One changed word changes a row's and a column's sum, whatever the change;
several can hide only if they cancel in every row and in every column. Knows no rank and no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch

_COLUMNS = 1024
_ROW_BYTES = 8 * _COLUMNS
_DIGEST_BYTES = 8
_SHOWN_WHOLE = 4


def checksums(tensors: Sequence[torch.Tensor]) -> list[str]:
    """Each tensor's checksum, as 16 hexadecimal digits: of its values in logical (row-major) order.

    Equal bits give equal checksums on every device and whatever the strides.
    """
    essences = [_essence(tensor) for tensor in tensors]
    return [
        hashlib.blake2b(part.numpy().tobytes(), digest_size=_DIGEST_BYTES).hexdigest()
        for part in _on_cpu(essences)
    ]


def shown(tensor: torch.Tensor, checksum: str) -> str:
    """For people: all values of a small tensor, else their sum (in float32 at least) and checksum."""
    values = tensor.detach()
    if values.numel() <= _SHOWN_WHOLE:
        return str(values.item() if values.numel() == 1 else values.tolist())
    if values.is_floating_point():
        values = values.sum(dtype=torch.promote_types(values.dtype, torch.float32))
    else:
        values = values.sum()
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{kind} with sum {values.item():.9g} and checksum {checksum}"


def _essence(tensor: torch.Tensor) -> torch.Tensor:
    """What is hashed of a tensor (uint8): sums of whole rows, and the rest as it is."""
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if data.storage_offset() % 8:
        data = data.clone()
    whole = len(data) // _ROW_BYTES * _ROW_BYTES
    if not whole:
        return data
    words = data[:whole].view(torch.int64).view(-1, _COLUMNS)
    sums = torch.cat([words.sum(0), words.sum(1)])
    return torch.cat([sums.view(torch.uint8), data[whole:]])


def _on_cpu(parts: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The parts in order, with one transfer from each other device."""
    away: dict[torch.device, list[torch.Tensor]] = {}
    for part in parts:
        if part.device.type != "cpu":
            away.setdefault(part.device, []).append(part)
    fetched = {device: iter(_fetched(several)) for device, several in away.items()}
    for part in parts:
        yield part if part.device.type == "cpu" else next(fetched[part.device])


def _fetched(parts: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    lengths = [len(part) for part in parts]
    return torch.split(torch.cat(list(parts)).cpu(), lengths)
