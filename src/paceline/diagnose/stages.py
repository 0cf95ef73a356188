"""Data-parallel replicas of a pipeline: is a worker slow, or does its whole stage have more to do?

Workers of one stage do the same work: they are held against each other as data-parallel workers are.
Only what all replicas of a stage share is the stage's, and no machine is at fault then.

A step of a pipeline lasts as long as its busiest worker works, and as the others take for one
micro-batch before and after it (the fill and drain of GPipe and 1F1B; m micro-batches):

    T = max over replicas, stages of (own_i + sum over the other stages j of own_j / m)

S = T / T without the worker's excess (what-if analysis: Lin et al., OSDI 2025; theirs replays the
whole schedule, this is its bound).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.compare.units import duration, ratio, share
from paceline.diagnose.findings import Diagnosis, Finding, severity_of
from paceline.diagnose.measured import BACKWARD, FORWARD, LINK, OPTIMIZER, PHASES, Floats, Measured
from paceline.diagnose.pace import relieved_s
from paceline.diagnose.suspects import MIN_EXCESS, Suspect, suspects
from paceline.diagnose.workers import about_worker
from paceline.strategies import Sync

OPERATIONS = {
    "forward-compute": FORWARD, "backward-compute": BACKWARD, "optimizer": OPTIMIZER,
}  # fmt: skip
"""What a worker does itself; sending, receiving and reducing contain waiting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One recorded operation of the worker ``rank``, replica ``replica`` of ``stage``."""

    rank: int
    replica: int
    stage: int
    step: int
    kind: str
    duration_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipeline:
    """``phases``: seconds, shape (steps, replicas, stages); ``ranks``: shape (replicas, stages)."""

    ranks: tuple[tuple[int, ...], ...]
    phases: Mapping[str, Floats]
    micro_batches: int

    @property
    def own_s(self) -> Floats:
        """Each worker's own work in a step."""
        total: Floats = np.sum(list(self.phases.values()), axis=0)
        return total


def pipeline_of(operations: Iterable[Operation]) -> Pipeline:
    """The steps of which something is recorded; replicas, stages and steps are numbered from 0."""
    own = [one for one in operations if one.kind in OPERATIONS]
    steps = {step: place for place, step in enumerate(sorted({one.step for one in own}))}
    shape = (len(steps), max(o.replica for o in own) + 1, max(o.stage for o in own) + 1)
    phases = {name: np.zeros(shape) for name in PHASES}
    ranks = np.zeros(shape[1:], dtype=np.int64)
    for one in own:
        phases[OPERATIONS[one.kind]][steps[one.step], one.replica, one.stage] += one.duration_s
        ranks[one.replica, one.stage] = one.rank
    forwards = sum(one.kind == "forward-compute" for one in own)
    return Pipeline(
        ranks=tuple(tuple(int(rank) for rank in row) for row in ranks), phases=phases,
        micro_batches=max(1, round(forwards / np.prod(shape))),
    )  # fmt: skip


def step_s(pipeline: Pipeline, own_s: Floats) -> float:
    """T, mean over the steps."""
    rest_s = own_s.sum(axis=2, keepdims=True) - own_s
    return float((own_s + rest_s / pipeline.micro_batches).max(axis=(1, 2)).mean())


def diagnose_pipeline(name: str, pipeline: Pipeline) -> Diagnosis:
    """Which worker is slow, or else which stage has more to do than the others."""
    stages = range(pipeline.own_s.shape[2])
    named = [(stage, *found) for stage in stages for found in _slow_workers(pipeline, stage)]
    findings = [_worker(pipeline, *one) for one in named] or _stage(pipeline)
    findings.sort(key=lambda one: -one.cost)
    return Diagnosis(
        run=name, status="finding" if findings else "well", findings=tuple(findings), doubts=(),
        remarks=(), what_if=(),
    )  # fmt: skip


def _slow_workers(pipeline: Pipeline, stage: int) -> list[tuple[Measured, Suspect]]:
    phases = {name: times_s[:, :, stage] for name, times_s in pipeline.phases.items()}
    nothing = np.zeros_like(phases[LINK])
    found = Measured(
        ranks=tuple(row[stage] for row in pipeline.ranks), strategy=Sync(), topology="allreduce",
        together=True, phases=phases, queued_s=nothing, wait_s=nothing, transfer_s=nothing,
        weight=nothing + 1.0, lag=nothing,
    )  # fmt: skip
    return [(found, one) for one in suspects(found) if one.proven]


def _worker(pipeline: Pipeline, stage: int, found: Measured, suspect: Suspect) -> Finding:
    own_s = pipeline.own_s
    relieved = own_s.copy()
    relieved[:, :, stage] = relieved_s(own_s[:, :, stage], [suspect.column], together=True)
    return _costing(about_worker(found, suspect), pipeline, relieved)


def _costing(finding: Finding, pipeline: Pipeline, relieved: Floats) -> Finding:
    """``finding`` with what it costs the pipeline: all of it waits, not only its own stage."""
    slowdown = step_s(pipeline, pipeline.own_s) / step_s(pipeline, relieved)
    cost = 1.0 - 1.0 / slowdown
    return Finding(
        cause=finding.cause, ranks=finding.ranks, phase=finding.phase, pattern=finding.pattern,
        cost=cost, severity=severity_of(cost), evidence=finding.evidence, action=finding.action,
        sentence=f"Rank {finding.ranks[0]} is slow in {finding.phase} ({finding.pattern}): every step "
        f"takes {ratio(slowdown)} as long as it would without.",
        figures={**finding.figures, "slowdown": slowdown},
    )  # fmt: skip


def _stage(pipeline: Pipeline) -> list[Finding]:
    """The stage that all replicas spend longer on than on the others, if there is one."""
    per_stage_s = np.median(pipeline.own_s, axis=(0, 1))
    stage = int(np.argmax(per_stage_s))
    others_s = float(np.median(np.delete(per_stage_s, stage)))
    if len(per_stage_s) < 2 or per_stage_s[stage] < (1.0 + MIN_EXCESS) * others_s:
        return []
    relieved = pipeline.own_s.copy()
    relieved[:, :, stage] = np.minimum(relieved[:, :, stage], others_s)
    cost = 1.0 - step_s(pipeline, relieved) / step_s(pipeline, pipeline.own_s)
    return [_uneven(pipeline, stage, [float(x) for x in per_stage_s], cost)]


def _uneven(pipeline: Pipeline, stage: int, per_stage_s: Sequence[float], cost: float) -> Finding:
    last = stage == len(per_stage_s) - 1
    name = "the last stage" if last else f"stage {stage}"
    times = ", ".join(duration(time_s) for time_s in per_stage_s)
    return Finding(
        cause="uneven-stages", cost=cost, severity=severity_of(cost),
        sentence=f"All of {name} has more to do than the others; no worker is at fault. It costs "
        f"{share(cost)} of the time.",
        evidence=(
            f"own work of a step by stage: {times} (medians)",
            f"the {len(pipeline.ranks)} replicas of each stage take equally long",
        ),
        action="Move layers from that stage to the others"
        + (" (the last one also computes the loss)." if last else "."),
        figures={"stage": stage, "own_s": list(per_stage_s)},
    )  # fmt: skip
