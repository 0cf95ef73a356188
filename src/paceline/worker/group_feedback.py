"""Of a group, the leader alone compresses: it goes on with what a checkpoint has withheld for any member.

Who led when the checkpoint was written does not matter, so that nothing withheld is lost where groups
are others than they were. Knows no codec.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from paceline.worker.circle import Circle, Joined
from paceline.worker.training import Training

_RESIDUALS = "residuals"


def led(training: Training, circle: Circle, group: Joined) -> Training:
    """``training`` of this member, with the group's residuals if it leads. All members have to call it."""
    if training.compress is None:
        return training
    mine = training.compressed.get(_RESIDUALS, {})
    held = torch.tensor([float(bool(mine) and not circle.leads)])
    group.finish(group.start_sum(held))
    if held.item() > 0:
        mine = {
            one.name: _sum(group, mine.get(one.name), one.parameter.detach())
            for one in training.trainables
        }
    kept = {**training.compressed, _RESIDUALS: mine if circle.leads else {}}
    return replace(training, compressed=kept)


def _sum(group: Joined, mine: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """Of all members, as wide as any of them."""
    total = torch.zeros(like.shape, dtype=torch.float64)
    if mine is not None:
        total += mine
    flat = total.view(-1)
    group.finish(group.start_sum(flat))
    return total
