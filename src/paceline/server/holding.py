"""What one process holds of the parameters: their optimizer, and the versions that workers read.

Does what it is told and decides nothing; knows no connections, and not whether it is alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.gradients.layout import FlatLayout
from paceline.gradients.parts import part_of, places_of
from paceline.gradients.precision.layouts import gradients_of
from paceline.server.applying import Applied, OtherShards, apply
from paceline.server.joint import Joint
from paceline.server.shards import Shard, Update
from paceline.server.versions import Versions
from paceline.server.vouching import Vouching


class Holding:
    """``layout``: of a version. ``number``: which shard this is, where ``owners`` says whose each
    parameter is; it has all of them where nobody says."""

    def __init__(
        self,
        layout: FlatLayout,
        shard: Shard,
        versions: Versions,
        *,
        number: int = 0,
        owners: Sequence[int] = (),
    ) -> None:
        self.shard = shard
        self.versions = versions
        own = part_of(layout, owners, number) if owners else layout
        self.vouching = Vouching(own, versions)
        self._type = gradients_of(layout).slots[0].dtype
        self._joined: tuple[Update, Joint] | None = None
        if owners:
            shard.keep(places_of(owners, number))

    def apply(
        self, updates: Sequence[Update], clip_norm: float | None, elsewhere: OtherShards
    ) -> list[Applied]:
        """Apply here and ``elsewhere``: see :func:`paceline.server.applying.apply`."""
        versions = self.versions
        room = versions.room()
        applied = apply(
            self.shard, updates,
            source=versions.source, target=versions.target(room), clip_norm=clip_norm,
            elsewhere=elsewhere,
        )  # fmt: skip
        if any(one.applied for one in applied):
            versions.publish(room)
        return applied

    # -------------------------------------------------- the same, as another process is told it

    def apply_at_once(self, updates: Sequence[Update]) -> list[list[float]]:
        """No norm is in question. For each update the sum of squares of each tile that this shard has."""
        shard, versions = self.shard, self.versions
        joints = shard.joints(updates)
        room = versions.room()
        scales = [update.lr_scale for update in updates]
        squares = shard.all_at_once(joints, scales, versions.source, versions.target(room))
        versions.publish(room)
        own = shard.own_numbers
        return [[one[number] for number in own] for one in squares]

    def join(self, update: Update) -> tuple[list[float], bool]:
        """Sum: the norm of each parameter that is here and has a gradient; whether all is finite."""
        [joint] = self.shard.joints([update])
        self.shard.join(joint)
        self._joined = update, joint
        return [float(one) for one in self.shard.norms(joint)], self.shard.is_finite(joint)

    def step(self, norm: float, clip_norm: float | None) -> None:
        """Step with what was joined; ``norm``: of the whole gradient."""
        assert self._joined is not None
        update, joint = self._joined
        versions = self.versions
        room = versions.room()
        clip = None if clip_norm is None else (clip_norm, torch.tensor(norm, dtype=self._type))
        self.shard.step(joint, update.lr_scale, versions.source, versions.target(room), clip)
        versions.publish(room)

    def close(self) -> None:
        """Let go of the versions, end the threads."""
        self._joined = None
        self.versions.close()
        self.shard.close()
