"""The shards in other processes, as the server sees them: orders out, answers in, put where they belong.

Every order is told to all of them before any answer is waited for. Whoever is lost answers no more; the
run is stopped then, so that nobody sees what became of the rest. Knows no sockets.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import compress
from typing import Any, Protocol

import torch

from paceline.gradients.parts import places_of
from paceline.server.joint import Joint
from paceline.server.shards import Shard, Update
from paceline.transport import messages
from paceline.transport.messages import Message, ShardPlace
from paceline.transport.shard_messages import (
    Apply,
    GetFacts,
    GetState,
    Give,
    JoinUp,
    Laying,
    Move,
    SetGroups,
    Show,
    Sum,
    TakeBack,
    Vacate,
)
from paceline.transport.witness_messages import Fact


class FarShard(Protocol):
    """One of them. ``number``: from 1; ``place``: where workers reach it."""

    number: int
    place: ShardPlace

    def tell(self, order: Message) -> None:
        """Send an order."""

    def answer(self) -> Any:
        """The reply to the last order that has one, waited for; None if the shard is lost."""


class OtherShards:
    """``owners``: each parameter's shard; ``dtype``: of gradients. There may be no such shard at all.

    ``places``: where workers reach them.
    """

    def __init__(
        self,
        shards: Sequence[FarShard] = (),
        owners: Sequence[int] = (),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.owners = list(owners)
        self.places = [shard.place for shard in shards]
        self._shards = shards
        self._dtype = dtype
        self._places = {shard.number: places_of(owners, shard.number) for shard in shards}

    # ---------------------------------------------------------------------------------- updates

    def apply(self, updates: Sequence[Update]) -> None:
        if self._shards:
            self._tell(Apply(sums=[_as_sum(update) for update in updates]))

    def squares(self, shard: Shard, into: Sequence[list[float]]) -> None:
        for number, answer in self._answers():
            numbers = shard.numbers_of(self._places[number])
            for one, values in zip(into, answer.values, strict=True):
                for tile, value in zip(numbers, values, strict=True):
                    one[tile] = value

    def join(self, update: Update) -> None:
        if self._shards:
            self._tell(JoinUp(sum=_as_sum(update)))

    def norms(self, joint: Joint, own: list[torch.Tensor]) -> tuple[list[torch.Tensor], bool]:
        if not self._shards:
            return own, True
        found: dict[int, torch.Tensor] = {}
        finite = True
        for number, answer in self._answers():
            places = (place for place in self._places[number] if joint.used[place])
            values = (torch.tensor(value, dtype=self._dtype) for value in answer.values)
            found.update(zip(places, values, strict=True))
            finite = finite and answer.finite
        mine = iter(own)
        far = frozenset(place for places in self._places.values() for place in places)
        for place in compress(range(len(joint.used)), joint.used):
            if place not in far:
                found[place] = next(mine)
        return [found[place] for place in sorted(found)], finite

    def step(self, norm: float, clip_norm: float | None) -> None:
        self._tell(Move(norm=norm, clip_norm=clip_norm))

    def set_groups(self, groups: list[dict[str, Any]]) -> None:
        """The optimizer's groups have these hyper-parameters."""
        self._tell(SetGroups(groups=groups))

    # --------------------------------------------------------------------------------- versions

    def give(self, rank: int, *, glance: bool) -> None:
        """``rank`` has the latest version from now on."""
        self._tell(Give(rank=rank, glance=glance))

    def show(self, rank: int, *, glance: bool) -> None:
        """Let ``rank`` have what it was given: the server's reply comes now."""
        self._tell(Show(rank=rank, glance=glance))

    def take_back(self, rank: int) -> None:
        """``rank`` reads nothing."""
        self._tell(TakeBack(rank=rank))

    def vacate(self, rank: int) -> None:
        """``rank`` is gone, and no push of it is to be decided."""
        self._tell(Vacate(rank=rank))

    # ------------------------------------------------------------------------ what they hold

    def state(self, own: bytes) -> bytes:
        """The optimizer's whole state; ``own``: this process's, which is all where it is alone."""
        if not self._shards:
            return own
        self._tell(GetState())
        whole = _load(own)
        for _, answer in self._answers():
            whole["state"].update(_load(answer.state)["state"])
        whole["state"] = dict(sorted(whole["state"].items()))
        buffer = io.BytesIO()
        torch.save(whole, buffer)
        return buffer.getvalue()

    def facts(self, rank: int, own: list[Fact]) -> list[Fact]:
        """About all parameters of the version that ``rank`` has; ``own``: about this process's."""
        if not self._shards:
            return own
        self._tell(GetFacts(rank=rank))
        count = len(own) + sum(map(len, self._places.values()))
        facts: dict[int, Fact] = {}
        for number, answer in self._answers():
            facts.update(zip(self._places[number], answer.facts, strict=True))
        far = frozenset(place for places in self._places.values() for place in places)
        facts.update(zip((p for p in range(count) if p not in far), own, strict=True))
        return [facts[place] for place in sorted(facts)]

    def _tell(self, order: messages.Message) -> None:
        for shard in self._shards:
            shard.tell(order)

    def _answers(self) -> list[tuple[int, Any]]:
        answers = [(shard.number, shard.answer()) for shard in self._shards]
        return [(number, answer) for number, answer in answers if answer is not None]


def _as_sum(update: Update) -> Sum:
    pushes = [Laying(rank=part.rank, used=part.used, norm=part.norm) for part in update.parts]
    return Sum(pushes=pushes, divisor=update.divisor, lr_scale=update.lr_scale)


def _load(state: bytes) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(io.BytesIO(state), weights_only=True)
    return loaded
