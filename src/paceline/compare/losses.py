"""The loss of a recorded run that its stability is judged by: a held-out one if the script logged any."""

from __future__ import annotations

from math import nan

from paceline.compare.phases import step_end_s
from paceline.compare.stability import LossShape, shape_of
from paceline.compare.target import FALLING
from paceline.runs import Run

Series = tuple[list[float], list[float]]
"""Samples, losses."""


def loss_shape(run: Run) -> LossShape | None:
    """Of the first logged metric that falls by name; else of the training loss. None without either."""
    name = held_out_name(run)
    training = _training(run)
    samples, losses = _held_out(run, name) if name else training
    if len(losses) < 2:
        name, (samples, losses) = "", training
    if not losses:
        return None
    return shape_of(
        seed=run.setup.seed, name=name, samples=samples, losses=losses,
        passes=max(len(rank.passes) for rank in run.ranks),
        first=training[1][0] if training[1] else nan,
    )  # fmt: skip


def held_out_name(run: Run) -> str:
    """The first logged metric whose name says that it is to fall; "" if there is none."""
    names = dict.fromkeys(metric.name for metric in run.metrics)
    return next((name for name in names if name.lower().endswith(FALLING)), "")


def _held_out(run: Run, name: str) -> Series:
    found = [metric for metric in run.metrics if metric.name == name]
    return [metric.samples for metric in found], [metric.value for metric in found]


def _training(run: Run) -> Series:
    """All workers' losses in the order of their windows' ends."""
    steps = sorted((step for rank in run.ranks for step in rank.steps), key=step_end_s)
    samples, losses, seen = [], [], 0.0
    for step in steps:
        seen += step.weight
        if step.loss is not None and step.weight > 0:
            samples.append(seen)
            losses.append(step.loss)
    if steps and steps[-1].loss is None and steps[-1].weight > 0:  # a trace has no NaN
        samples.append(seen)
        losses.append(nan)
    return samples, losses
