"""What a diagnosis says: findings with their evidence, or why there is none. Knows no rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["info", "minor", "major"]
Status = Literal["finding", "well", "undecided"]

SEVERITIES: tuple[Severity, ...] = ("info", "minor", "major")
MINOR_COST = 0.05
"""A twentieth of the time is worth a look; below it a repeated run differs by as much."""
MAJOR_COST = 0.2
"""From a fifth on it is cheaper to stop and repair than to go on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is wrong. ``cause``: a word for programs, as in ``docs/diagnose.md``.

    ``ranks``: who is named, empty if nobody is. ``phase``: where in a window, ``pattern``:
    persistent, bursty or transient; empty where the cause has none. ``cost``: the share of the run's
    time that would be saved without it, 0 to 1. ``sentence``, ``evidence``, ``action`` (lines): for people.
    ``figures``: the numbers behind the evidence, SI units.
    """

    cause: str
    sentence: str
    cost: float
    severity: Severity
    evidence: tuple[str, ...]
    action: str
    ranks: tuple[int, ...] = ()
    phase: str = ""
    pattern: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIf:
    """``change``: what would be different; ``time``: the time it would take, as a share of now."""

    change: str
    time: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """The verdict on a run. ``findings``: the costliest first. ``doubts``: what could not be judged,
    and why. ``remarks``: what a reader must not overlook. ``going_on``: the run has not ended."""

    run: str
    status: Status
    findings: tuple[Finding, ...]
    doubts: tuple[str, ...]
    remarks: tuple[str, ...]
    what_if: tuple[WhatIf, ...]
    going_on: bool = False

    @property
    def verdict(self) -> str:
        """One sentence."""
        return f"So far: {self._verdict}" if self.going_on else self._verdict

    @property
    def _verdict(self) -> str:
        if self.findings:
            return self.findings[0].sentence
        if self.doubts:
            return f"Undecided, because {self.doubts[0]}."
        return "All well: nothing stands out, and nobody waits for anyone in particular."

    def at_least(self, severity: Severity) -> bool:
        """Whether a finding is as severe as that."""
        least = SEVERITIES.index(severity)
        return any(SEVERITIES.index(one.severity) >= least for one in self.findings)


def severity_of(cost: float) -> Severity:
    """How bad it is to lose this share of the time."""
    if cost >= MAJOR_COST:
        return "major"
    return "minor" if cost >= MINOR_COST else "info"
