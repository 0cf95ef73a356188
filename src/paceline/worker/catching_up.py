"""A resumed script on its way to where its checkpoint was taken, and what it finds there.

The script runs from its beginning. Passes that had ended yield nothing, calls of ``save`` before the
one that made the checkpoint do nothing; the interrupted pass goes on with what was left of it. On
arrival the random streams are put where they stood. Knows no plane and no files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from paceline.errors import CheckpointError
from paceline.events import Left
from paceline.worker.order import Order
from paceline.worker.snapshot import Checkpoint
from paceline.worker.streams import LoaderGenerators, begin_anew, restore


@dataclass(frozen=True, kw_only=True, slots=True)
class GoingOn:
    """An interrupted pass. ``left``: what this rank's share is dealt from, ``lefts``: of all ranks, by
    owner; ``order``: if it was drawn for all; ``position``: batches of a stream that this rank had read.
    """

    left: Left
    lefts: dict[int, Left]
    order: Order | None
    position: int

    def total(self, total: int | None, *, split: bool) -> Left:
        """What is left, now that the loader says it has ``total`` batches.

        Raises CheckpointError if that is not the loader that the pass was begun with.
        """
        known = self.left.total
        if split and total is not None and known is not None and total != known:
            raise CheckpointError(
                f"The interrupted pass has {known} batches, and this loader has {total}: it cannot be "
                "gone on with. Resume with the data and the batch size it was begun with."
            )
        whole = total if known is None or not split else known
        return Left(
            owner=self.left.owner, next=self.left.next, total=whole, returned=self.left.returned
        )


class CatchingUp:
    """Rank ``rank`` of ``world_size`` resumes from ``checkpoint`` (None: it does not)."""

    def __init__(
        self, checkpoint: Checkpoint | None, *, rank: int = 0, world_size: int = 1
    ) -> None:
        self._checkpoint = checkpoint
        self._rank = rank
        self._world_size = world_size

    @property
    def over(self) -> bool:
        """Whether the script is where the checkpoint was taken, or beyond."""
        return self._checkpoint is None

    def skips(self, pass_id: int) -> bool:
        """Whether that pass had ended."""
        return self._checkpoint is not None and pass_id < self._checkpoint.body["passes"]

    def made_by(self, *, passes: int, calls: int) -> bool:
        """Whether call ``calls`` of ``save`` after ``passes`` passes made the checkpoint (0: it was made
        at the pass's end)."""
        if self._checkpoint is None or self._checkpoint.body["inside"]:
            return False
        body = self._checkpoint.body
        return (passes, calls) >= (body["passes"], body["calls"])

    def interrupted(self, loaders: LoaderGenerators, device: torch.device) -> GoingOn | None:
        """What to go on with in the pass that begins now; its beginning's streams are put back.

        None if the checkpoint lies between two passes.
        """
        checkpoint = self._checkpoint
        if checkpoint is None or not checkpoint.body["inside"]:
            return None
        own = self._part(checkpoint)
        if own is not None and own["began"] is not None:
            restore(own["began"]["streams"], device)
            loaders.restore(own["began"]["loaders"])
        kept = checkpoint.left
        new = Left(owner=self._rank, next=0, total=None, returned=())
        return GoingOn(
            left=kept.get(self._rank) or kept.get(-1) or new,
            lefts=kept,
            order=checkpoint.order,
            position=(own or {}).get("position") or 0,
        )

    def arrive(
        self, model: nn.Module, loaders: LoaderGenerators, device: torch.device, seed: int
    ) -> float:
        """Be where the checkpoint was taken; the samples that this rank had had in its pass."""
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is None:
            return 0.0
        part = self._part(checkpoint)
        if part is not None:
            loaders.restore(part["loaders"])
        own = checkpoint.ranks.get(self._rank)
        if own is None:
            begin_anew(seed, rank=self._rank, version=checkpoint.body["version"])
            return 0.0
        restore(own["streams"], device)
        if checkpoint.body["world_size"] != self._world_size:
            return 0.0
        _put_buffers(model, own["buffers"])
        samples: float = own["samples"]
        return samples

    def _part(self, checkpoint: Checkpoint) -> dict[str, Any] | None:
        """This rank's part; another's if there is none: loaders of all ranks draw alike."""
        return checkpoint.ranks.get(self._rank) or next(iter(checkpoint.ranks.values()), None)


def _put_buffers(model: nn.Module, buffers: dict[str, torch.Tensor]) -> None:
    own = dict(model.named_buffers())
    with torch.no_grad():
        for name, value in buffers.items():
            own[name].copy_(value)
