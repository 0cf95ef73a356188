"""Were the workers given a processor when they were ready to run? If not, the machine is to blame.

Knows the times that :mod:`.measured` set apart, and how many cores there are; judges no worker's work.
"""

from __future__ import annotations

import numpy as np

from paceline.compare.units import share
from paceline.diagnose.findings import MINOR_COST, Finding, severity_of
from paceline.diagnose.measured import Floats, Measured
from paceline.diagnose.pace import saving
from paceline.runs import Run

NOT_SCHEDULED = "not-scheduled"
NOTABLE = 0.1
"""A tenth of a worker's time. Every machine has other things to do now and then."""
ALONE = 0.25
"""One worker is named if the others wait less than a quarter of what it does: else it is the machine."""


def about_processor(run: Run, found: Measured) -> list[Finding]:
    """At most one finding: that processors were busy with something else."""
    if not found.windows or not found.queued_s.any():
        return []
    parts = found.queued_s.mean(axis=0) / max(found.cycle_s, 1e-9)
    cost = max(0.0, saving(found, found.work_s))
    if parts.max() < NOTABLE or cost < MINOR_COST:
        return []
    named = _alone(found, parts)
    who = f"Rank {named[0]} was" if named else "The workers were"
    return [
        Finding(
            cause=NOT_SCHEDULED, ranks=named, cost=cost, severity=severity_of(cost),
            sentence=f"{who} not given the processor: ready to run, but waiting for a core for "
            f"{share(float(parts.max()))} of the time. It costs {share(cost)} of the time.",
            evidence=(_shares(found, parts), *_crowd(run)),
            action="Look at what else runs on that machine; start no more workers and threads on it "
            "than it has cores. Until then no other verdict on these times is worth much.",
            figures={"queued": [float(part) for part in parts]},
        )
    ]  # fmt: skip


def _alone(found: Measured, parts: Floats) -> tuple[int, ...]:
    worst = int(parts.argmax())
    others = np.delete(parts, worst)
    return (found.ranks[worst],) if others.max(initial=0.0) < ALONE * parts[worst] else ()


def _shares(found: Measured, parts: Floats) -> str:
    each = ", ".join(
        f"rank {rank} {share(float(part))}" for rank, part in zip(found.ranks, parts, strict=True)
    )
    return f"ready, but not running: {each} of the time (the operating system's own account)"


def _crowd(run: Run) -> list[str]:
    cores = int(run.summary.get("host", {}).get("cores") or 0)
    workers, threads = run.setup.world_size, run.setup.threads
    if not cores or workers * threads <= cores:
        return []
    return [f"{workers} workers x {threads} threads share {cores} cores"]
