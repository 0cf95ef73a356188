"""How an update is applied that one shard, or several together, have: one decision, the same bits.

The sums are each shard's own; what depends on all of them (the norm to clip by, whether a sum overflowed)
is put together here in the order in which one shard would compute it, before any shard steps. Where the
norms of the pushes say beforehand that nothing depends on it, all shards step at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Protocol

import torch

from paceline.gradients.norms import needs_no_clipping
from paceline.server.joint import Joint
from paceline.server.shards import Shard, Update
from paceline.server.tiles import Pieces


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """``norm``: of the gradient after division, before clipping. ``applied`` False: non-finite."""

    norm: float
    applied: bool


class OtherShards(Protocol):
    """Shards in other processes: each call is one order, carried out there while this one works here."""

    def apply(self, updates: Sequence[Update]) -> None:
        """Sum and step each."""

    def squares(self, shard: Shard, into: Sequence[list[float]]) -> None:
        """Put what became of ``apply``, each tile's sum of squares, ``into`` those of each update."""

    def join(self, update: Update) -> None:
        """Sum, and do not step."""

    def norms(self, joint: Joint, own: list[torch.Tensor]) -> tuple[list[torch.Tensor], bool]:
        """What became of ``join``: all parameters' norms, in their order, ``own`` among them; and
        whether all sums elsewhere are finite."""

    def step(self, norm: float, clip_norm: float | None) -> None:
        """Step with what was joined."""


def apply(
    shard: Shard,
    updates: Sequence[Update],
    *,
    source: Pieces,
    target: Pieces,
    clip_norm: float | None,
    elsewhere: OtherShards,
) -> list[Applied]:
    """One optimizer step after the other from the parameters ``source`` to ``target``, which may be the
    same. What became of each; ``target`` holds something if any was applied.

    An update whose sum overflowed, or whose norm to clip by did, changes nothing.
    """
    joints = shard.joints(updates)
    if all(needs_no_clipping(joint.bound, clip_norm) for joint in joints):
        scales = [update.lr_scale for update in updates]
        elsewhere.apply(updates)
        squares = shard.all_at_once(joints, scales, source, target)
        elsewhere.squares(shard, squares)
        return [
            Applied(norm=joint.norm if joint.alone else sqrt(sum(own)), applied=True)
            for joint, own in zip(joints, squares, strict=True)
        ]
    applied: list[Applied] = []
    for joint, update in zip(joints, updates, strict=True):
        begun = any(one.applied for one in applied)
        elsewhere.join(update)
        shard.join(joint)
        norms, finite = elsewhere.norms(joint, shard.norms(joint))
        total = shard.total(joint, norms)
        norm = float(total)
        taken = isfinite(norm) or (clip_norm is None and finite and shard.is_finite(joint))
        applied.append(Applied(norm=norm, applied=taken))
        if taken:
            elsewhere.step(norm, clip_norm)
            clip = None if clip_norm is None else (clip_norm, total)
            shard.step(joint, update.lr_scale, target if begun else source, target, clip)
    return applied
