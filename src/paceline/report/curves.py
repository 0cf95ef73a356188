"""Loss and logged metrics against time and against samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.compare.figures import interval
from paceline.compare.phases import step_end_s
from paceline.report.svg import LINE_COLOURS, Chart, chart
from paceline.runs import Run

Array = np.ndarray[Any, np.dtype[np.float64]]
MAX_RAW_POINTS = 400
MAX_SMOOTH_POINTS = 120
WINDOWS_PER_MEAN = 12
LABEL_BETWEEN_DECADES = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """``times_s`` since the first window; ``samples`` in applied updates of all workers by then."""

    times_s: Array
    samples: Array
    values: Array


def loss_curve(run: Run) -> Curve:
    """Every window's loss, of all workers, in the order of their ends."""
    start_s, _ = interval(run)
    ended = sorted((step for rank in run.ranks for step in rank.steps), key=step_end_s)
    samples = np.cumsum([step.weight if step.applied else 0.0 for step in ended])
    values = np.array([np.nan if step.loss is None else step.loss for step in ended])
    known = np.isfinite(values)
    times = np.array([step_end_s(step) - start_s for step in ended])
    return Curve(times_s=times[known], samples=samples[known], values=values[known])


def metric_curve(run: Run, name: str) -> Curve:
    """The run's records of one metric."""
    start_s, _ = interval(run)
    found = [metric for metric in run.metrics if metric.name == name]
    return Curve(
        times_s=np.array([metric.time_s - start_s for metric in found]),
        samples=np.array([metric.samples for metric in found]),
        values=np.array([metric.value for metric in found]),
    )


def smoothed(curve: Curve) -> Curve:
    """Means over neighbouring windows, as many as leave at most ``MAX_SMOOTH_POINTS`` points."""
    points = min(MAX_SMOOTH_POINTS, max(1, len(curve.values) // WINDOWS_PER_MEAN))
    parts = [np.array_split(a, points) for a in (curve.times_s, curve.samples, curve.values)]
    times, samples, values = (np.array([chunk.mean() for chunk in part]) for part in parts)
    return Curve(times_s=times, samples=samples, values=values)


def thinned(curve: Curve) -> Curve:
    """Every k-th point, so that at most ``MAX_RAW_POINTS`` remain."""
    every = slice(None, None, max(1, -(-len(curve.values) // MAX_RAW_POINTS)))
    return Curve(
        times_s=curve.times_s[every], samples=curve.samples[every], values=curve.values[every]
    )


def loss_chart(runs: Mapping[str, Sequence[Run]]) -> Chart:
    """Training loss of the runs (by label), against time and against samples."""
    curves = {label: [loss_curve(run) for run in group] for label, group in runs.items()}

    def draw(figure: Figure) -> None:
        axes = _two_panels(figure)
        for colour, (label, group) in zip(_colours(), curves.items(), strict=False):
            for nth, curve in enumerate(one for one in group if len(one.values)):
                _plot(axes, thinned(curve), color=colour, alpha=0.22, linewidth=0.7)
                name = label if nth == 0 else None
                _plot(axes, smoothed(curve), color=colour, linewidth=2, label=name)
        _log_scale(axes[0], [curve for group in curves.values() for curve in group])
        axes[0].set_ylabel("training loss")
        _legend(figure, axes[1])

    caption = (
        "Training loss against time since the first window (left) and against samples in applied "
        "updates (right). Bold: means over neighbouring windows of all workers; thin: single windows."
    )
    return chart("Training loss", caption, (10, 3.6), draw)


def metric_chart(runs: Mapping[str, Sequence[Run]], name: str) -> Chart:
    """A logged metric against time and against samples."""

    def draw(figure: Figure) -> None:
        axes = _two_panels(figure)
        for colour, (label, group) in zip(_colours(), runs.items(), strict=False):
            for nth, run in enumerate(group):
                curve = metric_curve(run, name)
                named = label if nth == 0 else None
                _plot(axes, curve, color=colour, marker="o", markersize=3.5, label=named)
        axes[0].set_ylabel(name)
        _legend(figure, axes[1])

    caption = f"{name}, as the script logged it, against time (left) and samples (right)."
    return chart(name, caption, (10, 3.2), draw)


def metric_names(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """Names of the metrics that any run logged, in order of appearance."""
    every = [metric for group in runs.values() for run in group for metric in run.metrics]
    return list(dict.fromkeys(metric.name for metric in every))


def _two_panels(figure: Figure) -> tuple[Axes, Axes]:
    left, right = figure.subplots(1, 2, sharey=True)
    left.set_xlabel("seconds")
    right.set_xlabel("samples")
    right.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return left, right


def _plot(axes: tuple[Axes, Axes], curve: Curve, **style: Any) -> None:
    axes[0].plot(curve.times_s, curve.values, **style)
    axes[1].plot(curve.samples, curve.values, **style)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=6)


def _log_scale(axes: Axes, curves: Sequence[Curve]) -> None:
    """A logarithmic axis that fits the means, if all losses are positive; single windows may leave it."""
    known = [curve for curve in curves if len(curve.values)]
    if not known or min(curve.values.min() for curve in known) <= 0:
        return
    means = np.concatenate([smoothed(curve).values for curve in known])
    low, high = means.min() / 2, means.max() * 1.5
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    few_decades = high / low < LABEL_BETWEEN_DECADES
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if few_decades else "")
    axes.tick_params(axis="y", which="minor", labelsize=7)


def _colours() -> list[str]:
    return list(LINE_COLOURS) * 4
