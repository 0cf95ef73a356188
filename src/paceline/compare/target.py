"""A target that a logged metric shall reach, and when it did."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import bad_value
from paceline.trace import Metric
from paceline.values import exact

FALLING = ("loss", "error", "perplexity")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """``name`` at least ``value``, or at most where ``falling``."""

    name: str
    value: float
    falling: bool

    def __str__(self) -> str:
        return f"{self.name} {'<=' if self.falling else '>='} {exact(self.value)}"

    def reached_at_s(self, metrics: Sequence[Metric]) -> float | None:
        """Time of the first record that reaches the target; None if none does."""
        hits = (m.time_s for m in metrics if m.name == self.name and self.is_met_by(m.value))
        return next(hits, None)

    def is_met_by(self, value: float) -> bool:
        """Whether ``value`` is good enough."""
        return value <= self.value if self.falling else value >= self.value


def parse_target(text: str) -> Target:
    """``accuracy=0.97`` or ``accuracy>=0.97``: at least; ``loss<=0.3``: at most.

    A plain ``=`` means at most for names that end in loss, error or perplexity.
    """
    match = re.fullmatch(r"\s*([\w./-]+?)\s*(<=|>=|=)\s*(\S+)\s*", text)
    if match is None:
        raise bad_value("target", text, "NAME=VALUE, as in accuracy=0.97 or 'loss<=0.3'")
    name, relation, number = match.groups()
    try:
        value = float(number)
    except ValueError:
        raise bad_value("target", text, f"a number after {relation!r}") from None
    if not math.isfinite(value):
        raise bad_value("target", text, "a finite number")
    falling = relation == "<=" or (relation == "=" and name.lower().endswith(FALLING))
    return Target(name=name, value=value, falling=falling)
