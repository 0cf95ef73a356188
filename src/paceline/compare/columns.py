"""The columns of a comparison: title, what it means, and each cell as text.

The terminal's table and the report's are made of the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.compare import units
from paceline.compare.figures import Figures
from paceline.compare.rows import Row, mean_and_spread
from paceline.compare.target import Target

NOTHING = "–"
MAX_METRICS = 2
MAX_WORKERS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """``meaning``: a sentence for the reader. ``cell``: the text for the runs of one row."""

    title: str
    meaning: str
    cell: Callable[[Sequence[Figures]], str]


def result_columns(rows: Sequence[Row], target: Target | None) -> list[Column]:
    """What one gets: how fast, how good, how large."""
    return [
        _number(
            "time",
            "training alone: first window's start to the end of the last pass",
            "wall_s",
            units.duration,
        ),
        _number("samples/s", "samples in applied updates per second", "samples_per_s", units.count),
        _number("speed-up", "against one worker, for equal samples", "speed_up", units.ratio),
        _number("efficiency", "speed-up / workers", "efficiency", units.share),
        _number("effective batch", "workers x accumulate x batch", "effective_batch", units.count),
        _number("per update", "samples in one optimizer step", "samples_per_update", units.count),
        *[_metric(name) for name in _metric_names(rows)],
        *([_target(target)] if target else []),
        *_stability(rows),
        *_telling(rows),
        _number("memory", "peak of all processes together (Pss)", "peak_bytes", units.size),
    ]


def cause_columns(rows: Sequence[Row]) -> list[Column]:
    """Why it is so: where the time went, how stale, how much was moved and lost."""
    return [
        _number("computing", "share of all workers' time", "compute_share", units.share),
        _number("waiting", "for other workers: share of time", "wait_share", units.share),
        _number("exchanging", "moving, reducing, applying: share", "exchange_share", units.share),
        *_encoding(rows),
        Column(
            title="version lag: mean of each worker",
            meaning="updates by others between a worker's pull and its push, rank 0 first",
            cell=lambda runs: _per_worker(runs, "lag_mean", "{:.1f}"),
        ),
        Column(
            title="largest of each",
            meaning="largest version lag of each worker, rank 0 first",
            cell=lambda runs: _per_worker(runs, "lag_max", "{:.0f}"),
        ),
        _number("clock lead", "largest lead over the slowest at a start", "lead_max", units.count),
        _number("bytes/ sample", "payload sent and received", "bytes_per_sample", units.size),
        _number("lost pushes", "dropped, refused or empty", "lost_pushes", units.count),
    ]


def _encoding(rows: Sequence[Row]) -> list[Column]:
    """Where gradients were compressed."""
    if not any(figures.coding_share for row in rows for figures in row.runs):
        return []
    return [_number("encoding", "and decoding gradients: share", "coding_share", units.share)]


def _number(title: str, meaning: str, field: str, show: Callable[[float], str]) -> Column:
    def cell(runs: Sequence[Figures]) -> str:
        return _mean_text(runs, lambda figures: getattr(figures, field), show)

    return Column(title=title, meaning=meaning, cell=cell)


def _metric(name: str) -> Column:
    def cell(runs: Sequence[Figures]) -> str:
        return _mean_text(runs, lambda figures: figures.metrics.get(name), "{:.4f}".format)

    return Column(title=name, meaning=f"last logged {name}", cell=cell)


def _target(target: Target) -> Column:
    def cell(runs: Sequence[Figures]) -> str:
        reached = [figures for figures in runs if figures.target_s is not None]
        if runs and not reached:
            return "not reached"
        text = _mean_text(reached, lambda figures: figures.target_s, units.duration)
        return text if len(reached) == len(runs) else f"{text} ({len(reached)} of {len(runs)})"

    return Column(title=f"to {target}", meaning="time until the target was reached", cell=cell)


def _stability(rows: Sequence[Row]) -> list[Column]:
    """The verdict on each row's loss, where there is one of any."""
    verdicts = {_key(row.runs): row.stability for row in rows if row.stability is not None}
    if not verdicts:
        return []
    return [
        Column(
            title="loss against sync's",
            meaning="how stable (docs/report.md); final loss / sync's, or per cent of sync's fall",
            cell=lambda runs: str(verdicts.get(_key(runs), NOTHING)),
        )
    ]


def _key(runs: Sequence[Figures]) -> tuple[str, ...]:
    return tuple(figures.run for figures in runs)


def _telling(rows: Sequence[Row]) -> list[Column]:
    """Columns of what the rows were told, where it is not the same of all."""
    runs = [figures for row in rows for figures in row.runs]
    columns = [
        Column(
            title="accumulate", meaning="micro-batches of a window",
            cell=lambda own: str(own[0].accumulate) if own else NOTHING,
        ),
        Column(
            title="types", meaning="of numbers: what forward computes in",
            cell=lambda own: own[0].types.split(",")[0] if own else NOTHING,
        ),
    ]  # fmt: skip
    differs = [len({one.accumulate for one in runs}) > 1, len({one.types for one in runs}) > 1]
    return [column for column, shown in zip(columns, differs, strict=True) if shown]


def _mean_text(
    runs: Sequence[Figures],
    value: Callable[[Figures], float | None],
    show: Callable[[float], str],
) -> str:
    found = mean_and_spread(runs, value)
    if found is None:
        return NOTHING
    mean, spread = found
    return _plus_minus(show(mean), show(spread)) if spread else show(mean)


def _plus_minus(mean: str, spread: str) -> str:
    """``1.21 ± 0.05 s``: a common unit is said once."""
    number, _, unit = mean.partition(" ")
    if unit and spread.endswith(f" {unit}") and " " not in unit:
        return f"{number} ± {spread}"
    return f"{mean} ± {spread}"


def _per_worker(runs: Sequence[Figures], field: str, form: str) -> str:
    """One number a worker: means over the runs, or the range where workers are many."""
    table = [getattr(figures, field) for figures in runs]
    means = [sum(column) / len(column) for column in zip(*table, strict=False)]
    if len(means) > MAX_WORKERS:
        return f"{form.format(min(means))} to {form.format(max(means))}"
    return " ".join(form.format(mean) for mean in means) or NOTHING


def _metric_names(rows: Sequence[Row]) -> list[str]:
    names = dict.fromkeys(name for row in rows for figures in row.runs for name in figures.metrics)
    return list(names)[:MAX_METRICS]
