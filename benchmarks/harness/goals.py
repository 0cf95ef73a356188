"""The goals, by row, and what a measured value makes of its goal. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["FAILED", "MISSED", "near", "ok", ""]


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """A bound on a row's value. ``tolerated``: still acceptable. ``at_least``: more is better."""

    limit: float
    tolerated: float | None = None
    at_least: bool = False

    def verdict(self, value: float) -> Verdict:
        """``ok``, ``near`` (tolerated) or ``MISSED``."""
        if self._within(value, self.limit):
            return "ok"
        if self.tolerated is not None and self._within(value, self.tolerated):
            return "near"
        return "MISSED"

    def _within(self, value: float, limit: float) -> bool:
        return value >= limit if self.at_least else value <= limit


GOALS: dict[str, Goal] = {
    "A N=2 allreduce": Goal(limit=1.00, tolerated=1.03),
    "A N=4 allreduce": Goal(limit=1.00, tolerated=1.03),
    "A N=2 sync": Goal(limit=0.60),
    "A N=4 sync": Goal(limit=0.55),
    "A N=2 async": Goal(limit=0.60),
    "A N=4 async": Goal(limit=0.55),
    "A N=2 async no-momentum": Goal(limit=0.50),
    "A N=4 async no-momentum": Goal(limit=0.45),
    "B N=2 sync": Goal(limit=0.60),
    "B N=4 sync": Goal(limit=0.60),
    "B N=2 allreduce": Goal(limit=1.00),
    "B N=4 allreduce": Goal(limit=1.00),
    "C N=2 sync": Goal(limit=0.85),
    "C N=4 sync": Goal(limit=0.85),
    "A N=2 sync accumulate=8": Goal(limit=1.00),
    "latency": Goal(limit=0.3),
    "overhead N=1": Goal(limit=0.02),
    "memory N=4 sync": Goal(limit=1.0),
    "memory N=4 async": Goal(limit=1.0),
    "policy N=8": Goal(limit=200_000, at_least=True),
    "policy N=1024": Goal(limit=50_000, at_least=True),
    "growth async N=2..8": Goal(limit=1.15),
    "trace": Goal(limit=0.01),
    "numbers N=2 health=10 clip": Goal(limit=0.03),
    "wire N=2 dense": Goal(limit=1.03),
    "wire N=4 dense": Goal(limit=1.03),
    "wire N=2 topk:0.01": Goal(limit=0.25),
    "wire N=4 topk:0.01": Goal(limit=0.35),
    "wire N=2 powersgd:4": Goal(limit=1.00),
    "wire N=4 powersgd:4": Goal(limit=1.00),
    "simulate recurrence": Goal(limit=5e6, at_least=True),
    "simulate driver": Goal(limit=150_000, at_least=True),
    "simulate memory": Goal(limit=2e9),
}
"""A row that is not here is shown for comparison only."""


def verdict_of(key: str, value: float | None, failure: str) -> Verdict:
    """What to say of a row: a failed check beats everything."""
    if failure or value is None:
        return "FAILED"
    goal = GOALS.get(key)
    return "" if goal is None else goal.verdict(value)
