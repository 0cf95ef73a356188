"""What can be said of a batch without knowing its type: its size, its place, a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

import torch

_FINGERPRINT_ITEMS = 256


def samples_in(batch: Any) -> float:
    """Samples in a batch: the first dimension of the first tensor in it, else a list's length, else 1."""
    tensor = first_tensor(batch)
    if tensor is not None and tensor.dim() > 0:
        return float(tensor.shape[0])
    if tensor is None and isinstance(batch, list | tuple):
        return float(len(batch))
    return 1.0


def first_tensor(batch: Any) -> torch.Tensor | None:
    """The first tensor in a nest of lists, tuples and dictionaries."""
    if isinstance(batch, torch.Tensor):
        return batch
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        for item in batch:
            found = first_tensor(item)
            if found is not None:
                return found
    return None


def on_device(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on ``device``; the very same object if they are there already."""
    return map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))


def map_tensors(nest: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``nest`` with each tensor changed, and its own type kept. Unchanged parts stay the same objects."""
    if isinstance(nest, torch.Tensor):
        return change(nest)
    if isinstance(nest, Mapping):
        return _map_mapping(nest, change)
    if isinstance(nest, list | tuple):
        items = [map_tensors(item, change) for item in nest]
        if all(map(is_, items, nest)):
            return nest
        return type(nest)(*items) if hasattr(nest, "_fields") else type(nest)(items)
    return nest


class Fingerprint:
    """Tells series of batches apart, by their shapes, types and a sample of their values."""

    SIZE_BYTES = 8

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=self.SIZE_BYTES)

    def add(self, batch: Any) -> bytes:
        """The fingerprint of the series so far, ``batch`` included."""
        _feed(batch, self._digest.update)
        return self._digest.digest()


def _map_mapping(nest: Mapping[Any, Any], change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    items = {key: map_tensors(value, change) for key, value in nest.items()}
    if all(items[key] is value for key, value in nest.items()):
        return nest
    if type(nest) is dict:
        return items
    copied: Any = _shallow_copy(nest)
    for key, value in items.items():
        copied[key] = value
    return copied


def _shallow_copy(nest: Mapping[Any, Any]) -> Any:
    copy = getattr(nest, "copy", None)
    return copy() if copy is not None else dict(nest)


def _feed(item: Any, update: Callable[[bytes], None]) -> None:
    if isinstance(item, torch.Tensor):
        update(repr((tuple(item.shape), item.dtype)).encode())
        update(_sampled(item))
    elif isinstance(item, Mapping):
        for key in item:
            update(repr(key).encode())
            _feed(item[key], update)
    elif isinstance(item, list | tuple):
        update(len(item).to_bytes(8, "little"))
        for part in item[:_FINGERPRINT_ITEMS]:
            _feed(part, update)
    elif isinstance(item, str | bytes | int | float | bool | None):
        update(repr(item).encode())


def _sampled(tensor: torch.Tensor) -> bytes:
    if tensor.numel() == 0 or tensor.is_sparse:
        return b""
    step = -(-tensor.numel() // _FINGERPRINT_ITEMS)
    flat = tensor.detach().reshape(-1)
    if not flat.is_cpu:  # so that only the sample travels
        flat, step = flat[::step].cpu(), 1
    items = flat.view(torch.uint8).numpy().view(f"V{flat.itemsize}")  # of any type
    data: bytes = items[::step].tobytes()
    return data
