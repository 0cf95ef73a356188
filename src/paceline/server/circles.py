"""Groups of workers of which the policy knows the first alone: who speaks for whom, who goes with whom.

To the policy a group is one worker, by its leader's rank: alive as long as all its members are, and gone
when one is. Knows no tensors and no policy. Where nobody shares pushes each worker is a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from paceline.errors import UsageError
from paceline.events import Halt, Order
from paceline.server.members import Group, Member


class Circles:
    """``groups``: ranks, each group's leader first; none: each of ``world_size`` for itself."""

    def __init__(
        self, groups: Sequence[Sequence[int]], *, world_size: int, members: Group,
        clock_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._groups = [list(one) for one in groups] or [[rank] for rank in range(world_size)]
        if sorted(rank for one in self._groups for rank in one) != list(range(world_size)):
            raise UsageError(f"groups={groups}: expected each of {world_size} ranks once.")
        self._of = {rank: one for one in self._groups for rank in one}
        self._members = members
        self._clock_s = clock_s
        self._heard: set[int] = set()
        self._lost: dict[int, int] = {}

    @property
    def leaders(self) -> list[int]:
        """Those whom the policy knows, in rank order."""
        return sorted(one[0] for one in self._groups)

    def leader_of(self, rank: int) -> int:
        """Who speaks for ``rank``."""
        return self._of[rank][0]

    def heard(self, rank: int) -> bool:
        """``rank`` gave a sign of life. Whether all of its group have, since this was true last."""
        self._heard.add(rank)
        if not self._heard.issuperset(one.rank for one in self._live(rank)):
            return False
        self._heard.difference_update(self._of[rank])
        return True

    def follow(self, rank: int, what: str) -> list[int]:
        """``rank`` is lost (``what``: it died): the others of its group are told to stop. Their ranks,
        without the leader's."""
        lost = self._members.members[rank]
        self._lost.setdefault(self.leader_of(rank), rank)
        others = [one for one in self._live(rank) if one is not lost]
        for other in others:
            self._members.evict(other, f"{other} leaves with its group: {lost} {what}", "followed")
        return [other.rank for other in others if other.rank != self.leader_of(rank)]

    def silent(self, leader: int) -> list[int]:
        """The group of ``leader`` is given up for silence: its most silent member is evicted by name,
        and the others with it. Their ranks, without the leader's; nothing happens where the leader has
        gone in another way, or is the group."""
        live = self._live(leader)
        if len(self._of[leader]) == 1 or all(one.rank != leader for one in live):
            return []
        lost = min(live, key=lambda one: one.heard_s)
        now_s = self._clock_s()
        what = f"was silent for {now_s - lost.heard_s:.1f} s ({lost.doing(now_s)})"
        self._members.evict(lost, f"{lost} {what} and is evicted")
        gone = [lost.rank, *self.follow(lost.rank, what)]
        return [rank for rank in gone if rank != leader]

    def named(self, order: Order) -> Order:
        """``order``, where it halts the run because of a group: because of the member that was lost."""
        rank = self._lost.get(order.rank) if isinstance(order, Halt) else None
        if rank is None or not isinstance(order, Halt):
            return order
        reason = order.reason.replace(f"rank {order.rank} ", f"rank {rank} ")
        return replace(order, rank=rank, reason=reason)

    def _live(self, rank: int) -> list[Member]:
        members = self._members.members
        return [members[one] for one in self._of[rank] if members[one].state == "live"]
