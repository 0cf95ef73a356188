"""What becomes of pushes that are decided together: one Update, or a Drop each, with the reason.

Keeps the account of what was applied (version, progress, weights). Who is decided when, and what
follows from it, is the coordinator's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Literal

from paceline.events import Drop, Push, Update
from paceline.policy.members import Member
from paceline.policy.rules import Rules
from paceline.policy.weighting import Weights, divisor

DropKind = Literal["late", "non-finite", "empty"]


class Ledger:
    """``version``: updates applied. ``progress``: loader batches they committed, over all passes."""

    __slots__ = ("_rules", "progress", "version", "weights")

    def __init__(self, rules: Rules, *, version: int = 0, progress: int = 0) -> None:
        self.version = version
        self.progress = progress
        self.weights = Weights()
        self._rules = rules

    def decide(self, group: Sequence[Member]) -> Sequence[Update | Drop]:
        """The orders on the pushes of ``group``, each push in exactly one of them.

        Pushes without weight are left out of the sum. One non-finite push spoils the group.
        """
        filled = [member for member in group if _push(member).weight > 0]
        bad = [member.rank for member in filled if not _push(member).finite]
        if bad or not filled:
            return self._refuse(group, bad)
        update = self._alone(filled[0]) if len(filled) == 1 else self._together(filled)
        if len(filled) == len(group):
            return [update]
        return [update, *self._refuse(group, bad)]

    def _alone(self, member: Member) -> Update:
        """As :meth:`_together` for one push, which needs no sums (most decisions are this)."""
        push = _push(member)
        self.version += 1
        self.progress += len(member.running)
        return Update(
            ranks=(member.rank,),
            clocks=(member.clock,),
            lags=(self.version - 1 - member.version,),
            version=self.version,
            divisor=push.weight / push.unit,
            lr_scale=push.weight / self.weights.total if self._rules.mean else 1.0,
            weight=push.weight,
            progress=self.progress,
            reason=self._why(member.clock),
        )

    def _together(self, members: list[Member]) -> Update:
        weights = [_push(member).weight for member in members]
        unit = _push(members[0]).unit
        assert all(_push(member).unit == unit for member in members), "one round, one unit"
        before = self.version
        self.version += 1
        self.progress += sum(len(member.running) for member in members)
        return Update(
            ranks=tuple([member.rank for member in members]),
            clocks=tuple([member.clock for member in members]),
            lags=tuple([before - member.version for member in members]),
            version=self.version,
            divisor=divisor(weights, unit),
            lr_scale=1.0,
            weight=fsum(weights),
            progress=self.progress,
            reason=self._why(members[0].clock),
        )

    def _refuse(self, group: Sequence[Member], bad: list[int]) -> list[Drop]:
        spoiled = f"not finite: the gradient of rank {bad}"
        return [
            drop(member, "non-finite", spoiled)
            if _push(member).weight > 0
            else drop(member, "empty", "no step was taken in this window")
            for member in group
            if bad or _push(member).weight <= 0
        ]

    def _why(self, clock: int) -> str:
        return f"round {clock} is complete" if self._rules.joint else "applied on arrival"


def drop(member: Member, kind: DropKind, reason: str) -> Drop:
    """The Drop of ``member``'s push; its batches are lost."""
    return Drop(
        rank=member.rank, clock=member.clock, batches=member.running, kind=kind, reason=reason
    )


def _push(member: Member) -> Push:
    assert member.push is not None, member
    return member.push
