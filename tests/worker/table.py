"""Ranks as threads of one process, which gather at a table: what gathers by sockets and gloo do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

WITHIN_S = 20.0


class Table:
    """A gather for ``size`` threads, each with its own seat. ``turns``: how many there were."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.turns = 0
        self._laid: list[torch.Tensor | None] = [None] * size
        self._all_laid = threading.Barrier(size, action=self._count)
        self._all_taken = threading.Barrier(size)

    def seat(self, rank: int) -> Callable[[torch.Tensor], Sequence[torch.Tensor]]:
        def gather(message: torch.Tensor) -> Sequence[torch.Tensor]:
            self._laid[rank] = message.clone()
            self._all_laid.wait(WITHIN_S)
            taken = [one for one in self._laid if one is not None]
            self._all_taken.wait(WITHIN_S)
            return taken

        return gather

    def _count(self) -> None:
        self.turns += 1


def at_once(size: int, rank_does: Callable[[int], Any]) -> list[Any]:
    """What ``rank_does(rank)`` returns for each rank, all of them running side by side."""
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(rank_does, range(size)))
