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

    def __init__(self, rules: Rules) -> None:
        self.version = 0
        self.progress = 0
        self.weights = Weights()
        self._rules = rules

    def decide(self, group: Sequence[Member]) -> list[Update | Drop]:
        """The orders on the pushes of ``group``, each push in exactly one of them.

        Pushes without weight are left out of the sum. One non-finite push spoils the group.
        """
        filled = [member for member in group if _push(member).weight > 0]
        bad = [member.rank for member in filled if not _push(member).finite]
        orders: list[Update | Drop] = []
        if filled and not bad:
            orders.append(self._apply(filled))
        for member in group:
            if _push(member).weight <= 0:
                orders.append(drop(member, "empty", "no step was taken in this window"))
            elif bad:
                orders.append(drop(member, "non-finite", f"not finite: the gradient of rank {bad}"))
        return orders

    def _apply(self, filled: list[Member]) -> Update:
        pushes = [_push(member) for member in filled]
        weights = [push.weight for push in pushes]
        unit = pushes[0].unit
        assert all(push.unit == unit for push in pushes), "one round, one unit"
        before = self.version
        self.version += 1
        self.progress += sum([len(member.running) for member in filled])
        return Update(
            ranks=tuple([member.rank for member in filled]),
            clocks=tuple([member.clock for member in filled]),
            lags=tuple([before - member.version for member in filled]),
            version=self.version,
            divisor=divisor(weights, unit),
            lr_scale=weights[0] / self.weights.total if self._rules.mean else 1.0,
            weight=fsum(weights),
            progress=self.progress,
            reason=self._why(filled),
        )

    def _why(self, filled: list[Member]) -> str:
        if not self._rules.joint:
            return "applied on arrival"
        return f"round {filled[0].clock} is complete"


def drop(member: Member, kind: DropKind, reason: str) -> Drop:
    """The Drop of ``member``'s push; its batches are lost."""
    return Drop(
        rank=member.rank, clock=member.clock, batches=member.running, kind=kind, reason=reason
    )


def _push(member: Member) -> Push:
    assert member.push is not None, member
    return member.push
