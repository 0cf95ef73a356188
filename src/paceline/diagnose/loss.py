"""Is the loss unstable, and do lag, rate or skipped steps explain it?

The rise D is FORMULAS' ("When does the loss oscillate?"), taken of the training loss: the largest rise
of the median log loss from one tenth of the run to the next, D > 0.05. A training loss is noisier than a
held-out one, so the rise must also exceed four standard errors of the two medians.

Delay and rate: x_{t+1} = x_t - a x_{t-tau} is stable iff a < 2 sin(pi / (2 (2 tau + 1))): a lag of
tau divides the largest rate by 1 / sin(pi / (2 (2 tau + 1))).
"""

from __future__ import annotations

from math import isfinite, pi, sin

import numpy as np

from paceline.compare.units import share
from paceline.diagnose.findings import Finding
from paceline.runs import Run
from paceline.strategies import Backup, is_joint, parse_strategy
from paceline.trace import Step

PARTS = 10
MIN_PART = 8
RISE = 0.05
SURE = 4.0
MEDIAN_ERROR = 1.2533
"""The standard error of a median of normal values, over that of their mean: sqrt(pi / 2)."""
DIVERGED = 2.0
SKIPPED = 0.05
"""A loss scale skips about one step in 2,000; from one in twenty on skipping is a cause itself."""


def about_loss(run: Run) -> list[Finding]:
    """At most one finding."""
    steps = _in_order(run)
    trouble = _trouble([step for step in steps if step.loss is not None])
    applied = sum(step.applied for step in steps) / max(len(steps), 1)
    skipped = 1.0 - applied if not isinstance(parse_strategy(run.setup.strategy), Backup) else 0.0
    if not trouble and skipped < SKIPPED:
        return []
    cause, why, action = _explanation(run, skipped)
    what = trouble or f"{share(skipped)} of the windows were skipped"
    return [
        Finding(
            cause=cause, cost=0.0, severity="major" if trouble else "minor",
            sentence=f"The loss is unstable: {what}. {why}" if trouble else f"{what}. {why}",
            evidence=(what, why), action=action, figures={"skipped": skipped, "lag": _lag(run)},
        )
    ]  # fmt: skip


def _in_order(run: Run) -> list[Step]:
    """All workers' windows with samples, in the order of the parameters they were computed on (no
    clock is shared)."""
    return sorted(
        (step for rank in run.ranks for step in rank.steps if step.weight > 0),
        key=lambda step: step.version,
    )


def _trouble(steps: list[Step]) -> str:
    losses = [float(step.loss) for step in steps if step.loss is not None]
    lost = [step for step, loss in zip(steps, losses, strict=True) if not isfinite(loss)]
    if lost:
        return (
            f"{len(lost)} of {len(losses)} losses are not finite, the first at version "
            f"{lost[0].version}"
        )
    if len(losses) < PARTS * MIN_PART or min(losses) <= 0:
        return ""
    parts = np.array_split(np.log(losses), PARTS)
    medians = np.array([np.median(part) for part in parts])
    errors = np.array([MEDIAN_ERROR * part.std() / np.sqrt(len(part)) for part in parts])
    rises = np.diff(medians)
    sure = rises - SURE * np.hypot(errors[1:], errors[:-1]) > 0
    largest = float(np.max(rises * sure))
    if np.exp(medians[-1] - medians.min()) > DIVERGED and sure.any():
        return f"it ends at {np.exp(medians[-1] - medians.min()):.1f} times its lowest value"
    return f"its median rises by {share(np.expm1(largest))} within a tenth of the run" if (
        largest > RISE
    ) else ""  # fmt: skip


def _lag(run: Run) -> float:
    lags = [step.lag for rank in run.ranks for step in rank.steps if step.applied]
    return float(np.mean(lags)) if lags else 0.0


def _explanation(run: Run, skipped: float) -> tuple[str, str, str]:
    """(cause, why, what to do)."""
    if skipped >= SKIPPED:
        return (
            "skipped-steps",
            f"{share(skipped)} of the windows were not applied: their gradients were not finite.",
            "Look at the notices of the run: which parameter overflows first. A smaller loss scale "
            "or learning rate, clip_norm, or precision='bf16'.",
        )
    lag = _lag(run)
    if lag >= 1 and not is_joint(parse_strategy(run.setup.strategy)):
        bound = sin(pi / (2 * (2 * lag + 1)))
        return (
            "unstable-lag",
            f"Gradients are {lag:.1f} updates old on average: the largest stable rate is about "
            f"{bound:.2g} of that without lag (2 sin(pi / (2 (2 lag + 1))) against 2).",
            f"Try a learning rate x {bound:.2g}, a tighter bound such as ssp:1, or clip_norm.",
        )
    return (
        "unstable-rate",
        "No gradient is old and none was skipped: the learning rate is what is left.",
        "Try a third of the learning rate, a warm-up, or clip_norm.",
    )
