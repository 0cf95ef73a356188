"""A rank's end of a gloo group, for measuring: numpy arrays in, numpy arrays out, nothing else on the way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d

from paceline.measure.wire import Array

PATIENCE = timedelta(seconds=120)
"""A rank that is silent for so long is taken for dead."""


class GlooWire:
    """Ends with :meth:`close`. ``store``: by which the ranks find each other."""

    def __init__(self, store: Any, *, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        c10d.init_process_group(
            "gloo", store=store, rank=rank, world_size=world_size, timeout=PATIENCE
        )
        self._group: Any = c10d.group.WORLD

    def send(self, array: Array, to: int) -> None:
        """As :class:`paceline.measure.wire.Wire` says."""
        if array.size:
            self._send(array, to).wait()

    def recv(self, array: Array, source: int) -> None:
        """As :class:`paceline.measure.wire.Wire` says."""
        if array.size:
            self._recv(array, source).wait()

    def both(self, out: Array, to: int, into: Array, source: int) -> None:
        """As :class:`paceline.measure.wire.Wire` says."""
        works = [self._send(out, to)] if out.size else []
        works += [self._recv(into, source)] if into.size else []
        for work in works:
            work.wait()

    def all_reduce(self, array: Array) -> None:
        """gloo's own."""
        self._group.allreduce([torch.from_numpy(array)]).wait()

    def close(self) -> None:
        """Leave the group."""
        self._group = None
        c10d.destroy_process_group()

    def _send(self, array: Array, to: int) -> Any:
        return self._group.send([torch.from_numpy(array)], to, 0)

    def _recv(self, array: Array, source: int) -> Any:
        return self._group.recv([torch.from_numpy(array)], source, 0)
