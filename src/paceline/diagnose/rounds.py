"""What makes rounds long when no worker is at fault: hiccups that hit everybody, unequal batches."""

from __future__ import annotations

import numpy as np

from paceline.compare.units import share
from paceline.diagnose.findings import Finding, severity_of
from paceline.diagnose.measured import Measured
from paceline.diagnose.pace import pace_s
from paceline.strategies import SSP

HIDEABLE = 0.15
"""Equal workers with 10 % jitter lose a tenth of the time in rounds: that is nobody's fault."""
EXPLAINED = 0.5
"""r^2 between weights and times, above which the weights are what makes the times differ."""


def about_rounds(found: Measured) -> list[Finding]:
    """At most one finding, where workers go in rounds and take turns at being late."""
    if not found.together or found.workers < 2 or not found.windows:
        return []
    found = found.as_scheduled()
    own_s = found.own_s
    now_s = pace_s(found.strategy, own_s, found.transfer_s)
    lost = 1.0 - (float(own_s.mean()) + float(found.transfer_s.mean())) / now_s
    if lost < HIDEABLE:
        return []
    explained = _explained_by_weight(found)
    if explained >= EXPLAINED:
        return [_unequal_batches(lost, explained)]
    hidden = 1.0 - pace_s(SSP(staleness=3), own_s, found.transfer_s) / now_s
    return [_hiccups(found, lost, hidden)] if hidden >= HIDEABLE else []


def _explained_by_weight(found: Measured) -> float:
    """r^2 of what workers deviate from their round's mean in time, and in weight."""
    times = found.own_s - found.own_s.mean(axis=1, keepdims=True)
    weights = found.weight - found.weight.mean(axis=1, keepdims=True)
    if not weights.any() or not times.any():
        return 0.0
    both = float((times * weights).sum())
    if both <= 0:
        return 0.0
    return both**2 / (float((times**2).sum()) * float((weights**2).sum()))


def _unequal_batches(lost: float, explained: float) -> Finding:
    return Finding(
        cause="uneven-work", cost=lost, severity=severity_of(lost),
        sentence=f"The batches of a round are unequal, and everybody waits for the largest. It "
        f"costs {share(lost)} of the time.",
        evidence=(
            f"a window's weight explains {share(explained)} of who takes longer in its round",
            "no worker is late more often than the others",
        ),
        action="Sort samples of similar length into batches, or weight by tokens and fill batches "
        "to equal numbers of them.",
        figures={"explained": explained},
    )  # fmt: skip


def _hiccups(found: Measured, lost: float, hidden: float) -> Finding:
    last = np.bincount(found.own_s.argmax(axis=1), minlength=found.workers) / found.windows
    shares = ", ".join(share(float(one)) for one in last)
    return Finding(
        cause="hiccups", pattern="transient", cost=hidden, severity=severity_of(hidden),
        sentence=f"Workers take turns at being late, none in particular: {share(lost)} of the time "
        "is spent waiting.",
        evidence=(
            f"each was the last of its round about equally often: {shares} (by rank)",
            f"ssp:3 would hide {share(hidden)} of the time (recurrence on the recorded times)",
        ),
        action="Use ssp:3 (paceline compare shows what it does to the loss), or find what "
        "interrupts all machines: other processes, garbage collection, a shared disk.",
        figures={"lost": lost, "hidden": hidden},
    )  # fmt: skip
