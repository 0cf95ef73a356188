"""Several tensors as one run of bytes and back, for exchanges that do not care what they mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All elements of ``tensors`` as one uint8 tensor, each in logical (row-major) order."""
    parts = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def unpack(data: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Overwrite ``tensors`` with what :func:`pack` made of tensors like them."""
    offset = 0
    with torch.no_grad():
        for tensor in tensors:
            stop = offset + tensor.numel() * tensor.itemsize
            piece = data[offset:stop].clone().view(tensor.dtype)
            tensor.copy_(piece.reshape(tensor.shape))
            offset = stop
