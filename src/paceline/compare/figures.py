"""The figures of one run: how fast, where the time went, how stale, how large, how good.

Every figure is computed from the run's traces; sources and formulas stand beside each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paceline.compare.lead import largest_lead
from paceline.compare.losses import loss_shape
from paceline.compare.phases import phases_of, shares, step_end_s, windows
from paceline.compare.stability import LossShape
from paceline.compare.target import Target
from paceline.events import Update
from paceline.runs import RankTrace, Run
from paceline.strategies import drifts, parse_strategy
from paceline.trace import Health, Setup
from paceline.trials import trial_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Figures of one run. None: the traces do not say.

    ``run``: its directory. ``wall_s``: from the first window's start to the last pass's end over all
    workers, so without the start of processes. ``samples``: in updates that were applied;
    ``samples_per_s``: over wall time. ``effective_batch``: samples of one window of every worker
    (workers x accumulate x batch), ``samples_per_update``: of one optimizer step. Shares are of all
    workers' time inside passes. ``lag_mean``, ``lag_max``: version lag of the applied pushes, one
    entry a worker. ``lead_max``: largest clock lead at a start. ``peak_bytes``: largest memory of all
    processes together. ``bytes_per_sample``: payload that workers sent and received.
    ``lost_pushes``: dropped as late, refused as non-finite, or empty. ``metrics``: last value of
    each. ``target_s``: from the first window's start; None if there was no target or it was not
    reached. ``speed_up``, ``efficiency``: see :func:`against`. ``health``: each parameter's gradient when
    it was looked at last, if it was. ``digest``: of the initial parameters; ``final_digest``: of those at
    the end, "" if not all workers have closed or they do not agree (as after ``local``).
    ``options``: what the command line set beside the strategy, as
    in :mod:`paceline.trials`. ``types``: the numeric types, in words. ``loss``: what its stability is
    judged by.
    """

    run: str
    strategy: str
    topology: str
    workers: int
    seed: int
    digest: str
    wall_s: float
    samples: float
    samples_per_s: float
    updates: int
    effective_batch: float
    samples_per_update: float
    compute_share: float
    wait_share: float
    exchange_share: float
    data_share: float
    other_share: float
    lag_mean: tuple[float, ...]
    lag_max: tuple[int, ...]
    lead_max: int | None
    peak_bytes: int | None
    bytes_per_sample: float
    lost_pushes: int
    metrics: dict[str, float]
    target_s: float | None
    speed_up: float | None = None
    efficiency: float | None = None
    health: tuple[Health, ...] = ()
    final_digest: str = ""
    options: str = ""
    accumulate: int = 1
    types: str = ""
    loss: LossShape | None = None
    coding_share: float = 0.0


def figures_of(run: Run, target: Target | None = None) -> Figures:
    """The figures of ``run``, as far as it has come."""
    setup = run.setup
    start_s, end_s = interval(run)
    applied = [step for rank in run.ranks for step in rank.steps if step.applied]
    samples = sum(step.weight for step in applied)
    updates = _updates(run)
    timed = windows(run)
    share = shares([phases_of(rank, timed[rank.rank]) for rank in run.ranks])
    wall_s = end_s - start_s
    return Figures(
        run=str(run.directory),
        strategy=setup.strategy,
        topology=setup.topology,
        workers=setup.world_size,
        seed=setup.seed,
        digest=setup.digest,
        wall_s=wall_s,
        samples=samples,
        samples_per_s=samples / wall_s if wall_s > 0 else 0.0,
        updates=updates,
        effective_batch=_effective_batch(run),
        samples_per_update=samples / max(updates * _steppers(setup), 1),
        lag_mean=tuple(_lags(rank, np.mean) for rank in run.ranks),
        lag_max=tuple(int(_lags(rank, np.max)) for rank in run.ranks),
        lead_max=largest_lead(run.decisions),
        peak_bytes=peak_bytes(run),
        bytes_per_sample=_moved_bytes(run) / samples if samples else 0.0,
        lost_pushes=sum(not step.applied for rank in run.ranks for step in rank.steps),
        metrics={metric.name: metric.value for metric in run.metrics},
        target_s=_target_s(run, target, start_s),
        health=tuple(run.health),
        final_digest=_final_digest(run),
        options=_options(run),
        accumulate=setup.accumulate,
        types=setup.types,
        loss=loss_shape(run),
        **{f"{name}_share": value for name, value in share.items()},
    )


def against(figures: Figures, baseline: Figures) -> Figures:
    """``figures`` with speed-up and efficiency against ``baseline``, the one-worker run.

    Speed-up: time that one worker takes for as many samples / this run's time, which is
    X_N / X_1 with X samples per second. Efficiency E_N = X_N / (N X_1) (FORMULAS, "Utilisation").
    E_N < 1/N means slower than one worker.
    """
    if not baseline.samples_per_s:
        return figures
    speed_up = figures.samples_per_s / baseline.samples_per_s
    return replace(figures, speed_up=speed_up, efficiency=speed_up / figures.workers)


def slower_than_one(figures: Figures) -> bool:
    """Whether the run is slower than one worker: E_N < 1/N."""
    return (
        figures.workers > 1
        and figures.efficiency is not None
        and figures.efficiency < 1 / figures.workers
    )


def interval(run: Run) -> tuple[float, float]:
    """Start of the first window and end of the last pass (or window), over all workers."""
    starts = [rank.steps[0].time_s for rank in run.ranks if rank.steps]
    ends = [rank.passes[-1].time_s for rank in run.ranks if rank.passes]
    ends += [step_end_s(rank.steps[-1]) for rank in run.ranks if rank.steps]
    start_s = min(starts, default=0.0)
    return start_s, max(ends, default=start_s)


def peak_bytes(run: Run) -> int | None:
    """Peak of the summed Pss of all processes, as the launcher sampled it; None if it did not."""
    return int(run.summary.get("peak_pss_bytes", 0)) or None


def _final_digest(run: Run) -> str:
    ends = {"" if rank.close is None else rank.close.digest for rank in run.ranks}
    return ends.pop() if len(ends) == 1 else ""


def _options(run: Run) -> str:
    trial = trial_of(run.summary.get("request", {}))
    return "" if trial is None else str(trial).partition(" ")[2]


def _updates(run: Run) -> int:
    """Optimizer steps: as ordered by the policy, else (collectives, one worker) as counted there."""
    ordered = sum(isinstance(order, Update) for order in run.decisions)
    seen = [rank.steps[-1].version for rank in run.ranks if rank.steps]
    seen += [one.version for rank in run.ranks for one in rank.passes]
    return ordered or max(seen, default=0)


def _steppers(setup: Setup) -> int:
    """How many optimizers step: the workers' own, or one for all."""
    return setup.world_size if drifts(parse_strategy(setup.strategy)) else 1


def _effective_batch(run: Run) -> float:
    """Sum over workers of the median weight of their windows: short last windows do not count."""
    medians = [np.median([step.weight for step in rank.steps]) for rank in run.ranks if rank.steps]
    return float(sum(medians))


def _lags(rank: RankTrace, statistic: Any) -> float:
    lags = [step.lag for step in rank.steps if step.applied]
    return float(statistic(lags)) if lags else 0.0


def _moved_bytes(run: Run) -> int:
    return sum(step.sent_bytes + step.received_bytes for rank in run.ranks for step in rank.steps)


def _target_s(run: Run, target: Target | None, start_s: float) -> float | None:
    reached_s = target.reached_at_s(run.metrics) if target else None
    return None if reached_s is None else reached_s - start_s
