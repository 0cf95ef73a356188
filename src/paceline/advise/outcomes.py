"""A candidate strategy, what its probes came to, and when they reached the target.

Time to target follows MLPerf: a run that does not converge counts as infinite, and of five or more
seeds the best and the worst are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import mean, stdev

from paceline.compare.figures import interval
from paceline.compare.losses import loss_shape
from paceline.compare.stability import LossShape, Stability, judged
from paceline.compare.target import FALLING, Target
from paceline.errors import UsageError
from paceline.runs import Run
from paceline.trials import Trial

DROP_FROM = 5
LAST_PART = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """``trial`` on ``workers`` workers."""

    trial: Trial
    workers: int

    def __str__(self) -> str:
        return "1 worker" if self.workers == 1 else str(self.trial)


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A logged metric: ``time_s`` since the first window, ``samples`` trained on by all workers."""

    name: str
    time_s: float
    samples: float
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one probe came to. ``took_s``: of this machine's time. ``failure``: why there is no result.

    ``state_bytes``: parameters, gradients and optimizer state of one worker. ``batch``: samples of a
    micro-batch. ``parameter_bytes``: what an exchange moves.
    """

    candidate: Candidate
    seed: int
    took_s: float = 0.0
    points: tuple[Point, ...] = ()
    shape: LossShape | None = None
    batch: float = 1.0
    parameter_bytes: int = 0
    state_bytes: int = 0
    failure: str = ""

    def reached(self, target: Target) -> Point | None:
        """The first point at the target; None if there is none."""
        own = (point for point in self.points if point.name == target.name)
        return next((point for point in own if target.is_met_by(point.value)), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A candidate over its seeds. Times and samples to the target; inf if a seed did not reach it.

    ``spread_s``: standard deviation over seeds; None where only one, or none, reached it.
    """

    candidate: Candidate
    time_s: float
    spread_s: float | None
    samples: float
    seeds: int
    reached: int
    stability: Stability | None

    @property
    def usable(self) -> bool:
        return isfinite(self.time_s)


def outcome_of(run: Run, candidate: Candidate, *, took_s: float) -> Outcome:
    """What the recorded ``run`` came to."""
    start_s, _ = interval(run)
    steps = [step for rank in run.ranks for step in rank.steps if step.batches]
    sizes = sorted(step.weight / step.batches for step in steps)
    setup = run.setup
    return Outcome(
        candidate=candidate,
        seed=setup.seed,
        took_s=took_s,
        points=tuple(
            Point(name=one.name, time_s=one.time_s - start_s, samples=one.samples, value=one.value)
            for one in run.metrics
        ),
        shape=loss_shape(run),
        batch=sizes[len(sizes) // 2] if sizes else 1.0,
        parameter_bytes=setup.parameter_bytes,
        state_bytes=setup.parameter_bytes * (2 + state_slots(setup.optimizer)),
    )


def state_slots(optimizer: str) -> int:
    """Numbers that the optimizer keeps of each parameter, by its name and settings."""
    if "Adam" in optimizer or optimizer.startswith(("NAdam", "RAdam", "LAMB")):
        return 2
    return 0 if optimizer.startswith("SGD") and "momentum" not in optimizer else 1


def summary_of(
    candidate: Candidate,
    outcomes: Sequence[Outcome],
    target: Target,
    *,
    seconds_a_sample: float | None,
) -> Summary:
    """``candidate`` over its seeds. ``seconds_a_sample``: on the cluster that is meant; None where the
    probes' own time is that cluster's."""  # fmt: skip
    own = [one for one in outcomes if one.candidate == candidate]
    hits = [one.reached(target) for one in own]
    samples = [inf if hit is None else hit.samples for hit in hits]
    times = [
        inf if hit is None else hit.time_s if seconds_a_sample is None else hit.samples * seconds_a_sample
        for hit in hits
    ]  # fmt: skip
    finite = [time_s for time_s in times if isfinite(time_s)]
    return Summary(
        candidate=candidate,
        time_s=_typical(times),
        spread_s=stdev(finite) if len(finite) > 1 else None,
        samples=_typical(samples),
        seeds=len(own),
        reached=len(finite),
        stability=_stability(own, outcomes),
    )


def usual_target(sync: Sequence[Outcome]) -> Target:
    """What sync's worst seed has on average over its last quarter, of the first metric it logs.

    Raises UsageError if the script logs none.
    """
    points = [point for one in sync for point in one.points]
    if not points:
        raise UsageError(
            "The script logs no metric, so that there is nothing to aim at: call "
            "worker.log(accuracy=...) or worker.log(loss=...) with held-out data."
        )
    name = points[0].name
    falling = name.lower().endswith(FALLING)
    means = [_late_mean(one, name) for one in sync if one.points]
    return Target(name=name, value=max(means) if falling else min(means), falling=falling)


def _late_mean(outcome: Outcome, name: str) -> float:
    values = [point.value for point in outcome.points if point.name == name]
    return mean(values[-max(1, round(len(values) * LAST_PART)) :])


def _typical(values: Sequence[float]) -> float:
    if len(values) >= DROP_FROM:
        values = sorted(values)[1:-1]
    return mean(values) if values and all(map(isfinite, values)) else inf


def _stability(own: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Stability | None:
    shapes = [one.shape for one in own if one.shape is not None]
    sync = [one.shape for one in outcomes if one.shape is not None and is_sync(one.candidate)]
    workers = own[0].candidate.workers if own else 1
    return judged(shapes, sync) if shapes and workers > 1 else None


def is_sync(candidate: Candidate) -> bool:
    """Whether it is sync with several workers, as the script has it otherwise."""
    return candidate.workers > 1 and str(candidate.trial) == "sync"
