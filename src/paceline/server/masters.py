"""16-bit parameters in float32, where the optimizer steps them. Workers read copies in 16 bits.

One memory is enough: nobody reads it but the optimizer. Knows no versions.
"""

from __future__ import annotations

import torch

from paceline.gradients.layout import FlatLayout
from paceline.server.tiles import Pieces


class Masters:
    """``initial``: their bytes, laid out as ``wide``; ``narrow``: how the copies are laid out."""

    def __init__(self, initial: torch.Tensor, *, narrow: FlatLayout, wide: FlatLayout) -> None:
        self._narrow = narrow
        self.pieces = Pieces(initial.clone())
        self._views = wide.views(self.pieces.memory)

    @property
    def size_bytes(self) -> int:
        """Of a copy."""
        return self._narrow.total_bytes

    def copy_to(self, memory: torch.Tensor) -> None:
        """Round them into ``memory``."""
        for low, high in zip(self._narrow.views(memory), self._views, strict=True):
            low.copy_(high)
