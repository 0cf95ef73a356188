"""Where each parameter lies in one flat piece of memory, the same on every side that computes it.

Parameters are grouped by type (so that each type's part can be reduced as one vector), every view
starts on a 64-byte boundary (16-byte starts change the bits of torch's kernels), and views keep the
parameter's strides. Nothing here knows what the memory is used for or who owns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

ALIGNMENT_BYTES = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One parameter's place. ``shape`` and ``stride`` in elements; offsets in bytes."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset_bytes: int
    span_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatLayout:
    """Slots in the user's parameter order; each type's slots are contiguous, padding is zero.

    ``order``: the slots' numbers as they follow each other in memory, types apart.
    """

    slots: tuple[Slot, ...]
    order: tuple[int, ...]
    segments: tuple[tuple[torch.dtype, int, int], ...]
    total_bytes: int

    def views(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """Each parameter's view of ``memory`` (uint8, at least ``total_bytes``), in slot order."""
        return [_view(memory, slot) for slot in self.slots]

    def vectors(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """One flat vector per type, padding included: what to reduce, add or copy in one go."""
        return [memory[start:stop].view(dtype) for dtype, start, stop in self.segments]


def layout_of(
    entries: Sequence[tuple[str, tuple[int, ...], tuple[int, ...], torch.dtype]],
    order: Sequence[int] | None = None,
) -> FlatLayout:
    """The layout of ``(name, shape, stride, dtype)`` entries. Strides must be dense (any order).

    ``order``: of the entries in memory, by their numbers; their own by default.
    """
    order = range(len(entries)) if order is None else order
    placed: dict[int, Slot] = {}
    segments: list[tuple[torch.dtype, int, int]] = []
    offset = 0
    for dtype in dict.fromkeys(entries[index][3] for index in order):
        start = offset
        for index in order:
            name, shape, stride, own = entries[index]
            if own != dtype:
                continue
            span = _elements(shape) * dtype.itemsize
            placed[index] = Slot(
                name=name, shape=shape, stride=stride, dtype=dtype,
                offset_bytes=offset, span_bytes=span,
            )  # fmt: skip
            offset += -(-span // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        segments.append((dtype, start, offset))
    slots = tuple(placed[index] for index in range(len(entries)))
    return FlatLayout(slots=slots, order=tuple(order), segments=tuple(segments), total_bytes=offset)


def dense_stride(tensor: torch.Tensor) -> tuple[int, ...]:
    """The tensor's own strides if they are dense (channels_last, transposed), else contiguous ones."""
    like = torch.empty_like(tensor, device="meta", memory_format=torch.preserve_format)
    return tuple(like.stride())


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _view(memory: torch.Tensor, slot: Slot) -> torch.Tensor:
    stop = slot.offset_bytes + slot.span_bytes
    flat = memory[slot.offset_bytes : stop].view(slot.dtype)
    return flat.as_strided(slot.shape, slot.stride)
