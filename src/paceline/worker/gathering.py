"""Sums over workers that share a process: through the server, which knows all of them anyway.

What :class:`paceline.transport.collective.Group` is to processes. Values are added in rank order, so
that all ranks get the same bits. Knows no parameters.
"""

from __future__ import annotations

import torch

from paceline.worker.packing import pack, unpack
from paceline.worker.session import Session


class Gathering:
    """All workers of ``session``; every one has to call every method in the same order."""

    device = torch.device("cpu")

    def __init__(self, session: Session) -> None:
        self._session = session

    def start_sum(self, tensor: torch.Tensor) -> None:
        """Replace ``tensor`` by its sum over all ranks."""
        parts = self._session.gather("sum", pack([tensor]).numpy().tobytes())
        tensor.zero_()
        for part in parts:
            tensor.add_(torch.frombuffer(bytearray(part), dtype=tensor.dtype).view(tensor.shape))

    def finish(self, work: None) -> None:
        """It is there already."""

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Replace ``tensor`` by rank 0's."""
        mine = pack([tensor]).numpy().tobytes() if self._session.rank == 0 else b""
        root = self._session.gather("broadcast", mine)[0]
        if root:
            unpack(torch.frombuffer(bytearray(root), dtype=torch.uint8), [tensor])

    def close(self, *, abandon: bool) -> None:
        """There is nothing to let go of."""
