"""Error feedback: what compression withheld from an update is added to the next gradient.

(Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019.) Kept per parameter, in units of
weight times gradient without any loss scale, so that neither a changed scale nor a short window
gives it another meaning. It changes only when a push was applied: one that was dropped or refused is
as if it had never been. So over the pushes applied, sum(sent) + residual == sum(gradients).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from paceline.compression import Compression
from paceline.gradients.layout import Slot


class Feedback(Protocol):
    """What becomes of what is withheld. ``unit``: a gradient times this is weight times gradient."""

    def correct(self, place: int, gradient: torch.Tensor, unit: float) -> None:
        """Add to parameter ``place``'s gradient, in place, what was withheld from it."""

    def withhold(self, place: int, rest: torch.Tensor, unit: float) -> None:
        """Of the corrected gradient ``rest`` is not on its way. It is not kept, but copied."""

    def sent_whole(self, place: int) -> None:
        """All of the corrected gradient is on its way."""

    def settle(self, applied: bool) -> None:
        """The push was applied, or it leaves no trace."""

    def residuals(self) -> dict[str, torch.Tensor]:
        """What is withheld, by parameter name."""


class Residuals:
    """``kept``: what a checkpoint holds for this worker, by parameter name."""

    def __init__(
        self, slots: Sequence[Slot], kept: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        self._names = [slot.name for slot in slots]
        kept = kept or {}
        self._kept: dict[int, torch.Tensor] = {
            place: _laid_out(kept[slot.name], slot)
            for place, slot in enumerate(slots)
            if slot.name in kept
        }
        self._spare: dict[int, torch.Tensor] = {}
        self._coming: dict[int, torch.Tensor | None] = {}

    def correct(self, place: int, gradient: torch.Tensor, unit: float) -> None:
        if (kept := self._kept.get(place)) is not None:
            gradient.add_(kept.to(gradient.device), alpha=1 / unit)

    def withhold(self, place: int, rest: torch.Tensor, unit: float) -> None:
        room = self._spare.pop(place, None)
        room = torch.empty_like(rest) if room is None else room
        self._coming[place] = torch.mul(rest, unit, out=room)

    def sent_whole(self, place: int) -> None:
        self._coming[place] = None

    def settle(self, applied: bool) -> None:
        for place, coming in self._coming.items():
            old = self._kept.pop(place, None) if applied else coming
            if applied and coming is not None:
                self._kept[place] = coming
            if old is not None:
                self._spare[place] = old
        self._coming = {}

    def residuals(self) -> dict[str, torch.Tensor]:
        return {self._names[place]: kept for place, kept in sorted(self._kept.items())}


class NoFeedback:
    """What is withheld is lost."""

    def correct(self, place: int, gradient: torch.Tensor, unit: float) -> None:
        return

    def withhold(self, place: int, rest: torch.Tensor, unit: float) -> None:
        return

    def sent_whole(self, place: int) -> None:
        return

    def settle(self, applied: bool) -> None:
        return

    def residuals(self) -> dict[str, torch.Tensor]:
        return {}


def feedback_for(
    compression: Compression, slots: Sequence[Slot], kept: Mapping[str, torch.Tensor] | None
) -> Feedback:
    """What ``compression`` wants. ``kept``: what a checkpoint holds for this worker."""
    return Residuals(slots, kept) if compression.feedback else NoFeedback()


def shared_out(
    residuals: Mapping[int, Mapping[str, torch.Tensor]], *, rank: int, world_size: int
) -> dict[str, torch.Tensor]:
    """What ``rank`` of ``world_size`` goes on with, of the ``residuals`` of the ranks there were.

    Their sum over ranks stays what it was: a rank that is no more leaves its own to another.
    """
    mine: dict[str, torch.Tensor] = {}
    for old in sorted(residuals):
        if old % world_size == rank:
            for name, residual in residuals[old].items():
                mine[name] = mine[name] + residual if name in mine else residual.clone()
    return mine


def _laid_out(residual: torch.Tensor, slot: Slot) -> torch.Tensor:
    """A copy of ``residual`` in memory as gradients of ``slot`` are."""
    made = torch.empty_strided(slot.shape, slot.stride, dtype=slot.dtype)
    return made.copy_(residual)
