"""Sums over workers that share a process, or some of them: through the server, which knows all anyway.

What :class:`paceline.transport.collective.Group` is to processes. Values are added in rank order, so
that all ranks get the same bits. Knows no parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.worker.packing import pack, unpack
from paceline.worker.session import Session


class Gathering:
    """All workers of ``session``, or ``ranks``, the first of which is the lowest; every one has to call
    every method in the same order."""

    device = torch.device("cpu")

    def __init__(self, session: Session, ranks: Sequence[int] = ()) -> None:
        self._session = session
        self._ranks = ranks
        self._root = ranks[0] if ranks else 0

    def start_sum(self, tensor: torch.Tensor) -> None:
        """Replace ``tensor`` by its sum over all ranks."""
        parts = self._gather("sum", pack([tensor]).numpy().tobytes())
        tensor.zero_()
        for part in parts:
            tensor.add_(torch.frombuffer(bytearray(part), dtype=tensor.dtype).view(tensor.shape))

    def finish(self, work: None) -> None:
        """It is there already."""

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Replace ``tensor`` by the first rank's."""
        mine = pack([tensor]).numpy().tobytes() if self._session.rank == self._root else b""
        root = self._gather("broadcast", mine)[0]
        if root:
            unpack(torch.frombuffer(bytearray(root), dtype=torch.uint8), [tensor])

    def close(self, *, abandon: bool) -> None:
        """There is nothing to let go of."""

    def _gather(self, what: str, payload: bytes) -> list[bytes]:
        if not self._ranks:
            return self._session.gather(what, payload)
        return self._session.gather(f"{what} from {self._root}", payload, self._ranks)
