"""The order of a map-style loader's batches: drawn once as the plain loop would, sent to all ranks.

An order is a list: entry j holds the indices of batch j (or one index, where the loader does not
batch). Knows DataLoader's public attributes; no ranks, no plane.
"""

from __future__ import annotations

import operator
from itertools import islice
from typing import Any

import msgspec
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from paceline.errors import UsageError

Order = list[Any]


def is_map_style(loader: Any, *, steps_given: bool) -> bool:
    """Whether batches can be loaded one by one by index, from a loader that iterates as torch's own.

    One without a length needs ``steps=``: its sampler may never end.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    if type(loader).__iter__ is not DataLoader.__iter__:
        return False
    return steps_given or length_of(index_source(loader)) is not None


def index_source(loader: DataLoader[Any]) -> Any:
    """What yields the loader's entries: lists of indices, or single ones where it does not batch."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def length_of(source: Any) -> int | None:
    """``len(source)``, or None where there is none to be had."""
    try:
        return len(source)
    except TypeError:
        return None


def refuse_distributed_sampler(loader: Any) -> None:
    """Raise UsageError for a loader that already splits its data among ranks."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    samplers = (
        getattr(loader, "sampler", None),
        getattr(batch_sampler, "sampler", None),
        batch_sampler,
    )
    if any(isinstance(sampler, DistributedSampler) for sampler in samplers):
        raise UsageError(
            "The loader has a DistributedSampler, and worker.batches splits the data itself: each "
            "sample would be split away twice. Delete the sampler (use shuffle=True), or say "
            "worker.batches(loader, split=False) if the loader yields this rank's own data."
        )


def draw_order(loader: DataLoader[Any], total: int | None, *, seeded: bool) -> Order:
    """The batches of ``total`` entries (None: one pass), over as many passes as that takes.

    Draws from the loader's (or torch's global) random stream exactly what iterating the loader
    would: a seed for its workers (unless ``seeded``: persistent workers keep theirs), then whatever
    its sampler draws.
    """
    order: Order = []
    while total is None or len(order) < total:
        if not seeded:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        seeded = loader.persistent_workers
        wanted = None if total is None else total - len(order)
        epoch = list(islice(iter(index_source(loader)), wanted))
        order += epoch
        if total is None or not epoch:
            break
    return order


def encode_order(order: Order) -> bytes:
    """The order as bytes. Raises UsageError for indices that are neither numbers nor text."""
    return msgspec.msgpack.encode([_plain(entry) for entry in order])


def decode_order(data: bytes) -> Order:
    """The order in ``data``."""
    decoded: Order = msgspec.msgpack.decode(data)
    return decoded


def nominal_samples(loader: DataLoader[Any], order: Order) -> float:
    """Samples in a typical batch; 1.0 where the loader does not batch and nobody can know."""
    if loader.batch_size is not None:
        return float(loader.batch_size)
    sizes = [len(entry) for entry in order[:64] if isinstance(entry, list | tuple)]
    return max(1.0, sum(sizes) / len(sizes)) if sizes else 1.0


def _plain(entry: Any) -> Any:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, list | tuple | range):
        return [_plain(index) for index in entry]
    try:
        return operator.index(entry)
    except TypeError:
        raise UsageError(
            f"The sampler yields indices of type {type(entry).__name__}, which cannot be sent to the "
            "other ranks. Use whole numbers or text, or split=False with this rank's own data."
        ) from None
