"""All parameters of the run, whatever processes hold them: what the server's orders are carried out on.

One process's own (:class:`paceline.server.holding.Holding`), and the same order to those elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.gradients.layout import FlatLayout
from paceline.server.applying import Applied
from paceline.server.connection import Line
from paceline.server.holding import Holding
from paceline.server.joint import Gradients
from paceline.server.opening import Mapped, carry_frames
from paceline.server.other_shards import OtherShards
from paceline.server.parcels import Stored
from paceline.server.shards import Update
from paceline.server.versions import Buffer
from paceline.transport.messages import (
    CutTaken,
    Decided,
    Ended,
    Latest,
    Message,
    ShardPlace,
    Started,
)
from paceline.transport.witness_messages import Fact

_GLANCE: dict[type, bool] = {
    Started: False, Ended: False, Decided: False, Latest: True, CutTaken: True,
}  # fmt: skip


class Store:
    """``own``: this process's part. The version is one, of all of them. ``layout``: of a version."""

    def __init__(
        self, own: Holding, elsewhere: OtherShards, *, layout: FlatLayout, bucket_bytes: int
    ) -> None:
        self._own = own
        self._elsewhere = elsewhere
        self._layout = layout
        self._bucket_bytes = bucket_bytes

    def carry(self, line: Line, mapped: Mapped, stored: Callable[[int], Stored]) -> None:
        """Let a worker's ``line`` carry what is this process's part, if it must be carried."""
        carry_frames(
            line, mapped, stored,
            bucket_bytes=self._bucket_bytes, layout=self._layout, owners=self.owners,
        )  # fmt: skip

    @property
    def divided(self) -> bool:
        """Whether there are several shards."""
        return bool(self._elsewhere.places)

    @property
    def owners(self) -> list[int]:
        """Each parameter's shard, if there are several."""
        return self._elsewhere.owners

    @property
    def places(self) -> list[ShardPlace]:
        """Where the others are."""
        return self._elsewhere.places

    def apply(self, updates: Sequence[Update], clip_norm: float | None) -> list[Applied]:
        """The updates, one after the other; what became of each."""
        return self._own.apply(updates, clip_norm, self._elsewhere)

    def fits(self, used: bytes, groups: list[dict[str, Any]] | None) -> bool:
        """Whether a push with these can be meant for this model."""
        return self._own.shard.fits(used, groups)

    def set_groups(self, groups: list[dict[str, Any]]) -> None:
        """From now on the optimizer's groups have these hyper-parameters."""
        self._own.shard.set_groups(groups)
        self._elsewhere.set_groups(groups)

    def sum_ahead(self, gradients: Sequence[Gradients], filled: int) -> None:
        """As :meth:`paceline.server.shards.Shard.sum_ahead`: nobody fills ahead where there are several."""
        self._own.shard.sum_ahead(gradients, filled)

    def forget_sums(self) -> None:
        """The round that was summed ahead is not applied."""
        self._own.shard.forget_sums()

    def state(self) -> bytes:
        """The optimizer's ``state_dict``, numbered in the user's order, for ``torch.load``."""
        return self._elsewhere.state(self._own.shard.state())

    def facts(self, rank: int) -> list[Fact]:
        """About the parameters of the version that ``rank`` reads for its window."""
        return self._elsewhere.facts(rank, self._own.vouching.facts(rank))

    def give(self, rank: int) -> int:
        """``rank`` reads the latest version from now on, and no other; returns the buffer's fd."""
        self._elsewhere.give(rank, glance=False)
        return self._own.versions.give(rank)

    def lend(self, rank: int) -> int:
        """``rank`` looks at the latest version beside the one it has, until it asks again."""
        self._elsewhere.give(rank, glance=True)
        return self._own.versions.lend(rank)

    def named(self, fd: int) -> Buffer:
        """The buffer of this process that answers call ``fd``."""
        return self._own.versions.named(fd)

    def show(self, rank: int, copy: Buffer) -> None:
        """``rank`` reads ``copy`` for its window, which is its own, and no version: there is one shard."""
        self._own.versions.show(rank, copy)

    def bring(self, rank: int, reply: Message) -> None:
        """``reply`` is about to be sent: what it says that ``rank`` may read must get there."""
        glance = _GLANCE.get(type(reply))
        if glance is not None:
            self._elsewhere.show(rank, glance=glance)

    def held(self, rank: int) -> int:
        """The buffer of what ``rank`` reads for its window."""
        return self._own.versions.held(rank).fd

    def take_back(self, rank: int) -> None:
        """``rank`` reads nothing: it waits for an answer, or is gone."""
        self._elsewhere.take_back(rank)
        self._own.versions.take_back(rank)

    def vacate(self, rank: int) -> None:
        """``rank`` is gone, and no push of it is to be decided."""
        self._elsewhere.vacate(rank)

    def close(self) -> None:
        """Let go of the versions, end the threads."""
        self._own.close()
