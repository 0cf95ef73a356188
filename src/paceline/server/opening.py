"""Checks what workers want the server plane to be, and maps their regions.

Nothing is mapped before its size is known to be right. Knows no policy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.compression import parse_compression
from paceline.errors import MismatchError, UsageError, bad_value
from paceline.gradients.buckets import Bucket, buckets_of
from paceline.gradients.codecs.packing import Unpacker
from paceline.gradients.layout import FlatLayout, layout_of
from paceline.gradients.parts import Piece, pushed_pieces, runs_of
from paceline.gradients.precision.layouts import gradients_of
from paceline.server.connection import Line
from paceline.server.joint import Gradients
from paceline.server.masters import Masters
from paceline.server.members import Member
from paceline.server.parcels import Intake, Outgo, Stored
from paceline.server.shards import Shard
from paceline.server.tiles import TILE_BYTES
from paceline.transport.messages import Open, Tensor
from paceline.transport.shared_memory import Region

MAX_THREADS = 4
"""An update is bound by memory, which about as many cores keep busy."""

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mapped:
    """A worker's region, and the gradients in it."""

    region: Region
    gradients: Gradients


def layout_for(opening: Open) -> FlatLayout:
    """The layout of the manifest's parameters. Raises UsageError if types, groups or sizes make no sense."""
    for tensor in opening.manifest:
        if tensor.dtype not in _DTYPES:
            raise bad_value(
                f"dtype of {tensor.name!r}", tensor.dtype, "one of " + ", ".join(_DTYPES)
            )
    _check_groups(opening.manifest, len(opening.optimizer.groups))
    layout = layout_of([(t.name, t.shape, t.stride, _DTYPES[t.dtype]) for t in opening.manifest])
    expected_bytes = gradients_of(layout).total_bytes
    if opening.region_bytes != expected_bytes:
        raise bad_value("region_bytes", opening.region_bytes, str(expected_bytes))
    return layout


def initial_values(layout: FlatLayout, region: torch.Tensor) -> torch.Tensor | Masters:
    """The first version's bytes out of rank 0's region, or masters if ``layout`` has 16-bit types."""
    wide = gradients_of(layout)
    return region if wide is layout else Masters(region, narrow=layout, wide=wide)


def gradients_from(member: Member, opening: Open, layout: FlatLayout) -> Mapped:
    """Where ``member``'s gradients come: its own region, or one of the server's if it is remote."""
    if member.data is not None and not member.data.remote:
        return map_region(opening, member.pid, layout)
    region = Region.create(layout.total_bytes)
    if opening.initial is not None:
        if len(opening.initial) != layout.total_bytes:
            raise bad_value("initial", f"{len(opening.initial)} bytes", str(layout.total_bytes))
        region.memory.copy_(torch.frombuffer(bytearray(opening.initial), dtype=torch.uint8))
    return Mapped(region=region, gradients=Gradients(layout, region.memory))


def is_far(member: Member, opening: Open) -> bool:
    """Whether what ``member`` is given crosses a wire, or is to be as if it did."""
    return opening.far or (member.data is not None and member.data.remote)


def carry_frames(
    line: Line,
    mapped: Mapped,
    stored: Callable[[int], Stored],
    *,
    bucket_bytes: int,
    layout: FlatLayout,
    number: int = 0,
    owners: Sequence[int] = (),
) -> None:
    """Let a remote worker's ``line`` carry its gradients and the parameters (of ``layout``) that it is
    given, ``stored``: all of them, or those of shard ``number`` where ``owners`` says whose each is."""
    if not line.remote:
        return
    wide, memory = mapped.gradients.layout, bytes_of(mapped.gradients.memory)
    pieces: Sequence[Piece | Bucket] = buckets_of(wide, bucket_bytes)
    runs = None
    if owners:
        pieces = pushed_pieces(wide, owners, number, bucket_bytes)
        runs = [(one.start_bytes, one.stop_bytes) for one in runs_of(layout, owners, number)]
    intake = Intake([memory[one.start_bytes : one.stop_bytes] for one in pieces])
    line.carry(intake, Outgo(stored, runs))


def bytes_of(memory: torch.Tensor) -> memoryview:
    """The bytes of ``memory``, which are not copied."""
    array: Any = memory.numpy()
    return memoryview(array)


def map_region(opening: Open, pid: int, layout: FlatLayout) -> Mapped:
    """Map the region that process ``pid`` offers. Raises UsageError, or OSError if it is gone."""
    region = Region.open(pid, opening.region_fd, opening.region_bytes)
    return Mapped(region=region, gradients=Gradients(layout, region.memory))


def build_shard(opening: Open, layout: FlatLayout) -> Shard:
    """The optimizer, with the state given if there is any, on as many threads as pay."""
    groups = [tensor.group for tensor in opening.manifest]
    threads = min(MAX_THREADS, len(os.sched_getaffinity(0)))
    return Shard(
        layout=layout, spec=opening.optimizer, groups=groups, state=opening.state, threads=threads,
        bucket_bytes=opening.bucket_bytes, tile_bytes=min(TILE_BYTES, opening.bucket_bytes),
    )  # fmt: skip


def unpacker_for(opening: Open, layout: FlatLayout) -> Unpacker | None:
    """What decodes pushes, if they are to be compressed. Raises UsageError for an unknown word."""
    compression = parse_compression(opening.compress or None)
    return None if compression is None else Unpacker(compression, layout.slots)


def check_same(first: Open, other: Open, rank: int) -> None:
    """Workers have compared in detail; a difference that is left must not reach shared memory."""
    fields = ("strategy", "manifest", "optimizer", "clip_norm", "region_bytes", "bucket_bytes")
    for field in (*fields, "scale", "scale_patience", "limit", "compress", "groups"):
        if getattr(first, field) != getattr(other, field):
            raise MismatchError(
                f"{field} of rank {rank} is not rank 0's. Give every rank the same."
            )


def _check_groups(manifest: list[Tensor], count: int) -> None:
    groups = [tensor.group for tensor in manifest]
    if groups != sorted(groups) or not all(0 <= group < count for group in groups):
        raise UsageError(f"groups={groups}: expected 0 to {count - 1}, in the optimizer's order.")
    if not manifest:
        raise UsageError("manifest=[]: expected at least one trainable parameter.")
