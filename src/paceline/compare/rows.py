"""Rows of a comparison: one strategy over its seeds, beside the one-worker row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.compare.figures import Figures, against, slower_than_one
from paceline.compare.stability import LossShape, Stability, judged
from paceline.compare.target import Target
from paceline.errors import UsageError

IMPLAUSIBLE_EFFICIENCY = 1.15
"""Above it a speed-up says more about the measurement than about the workers."""

SAYINGS = {
    "DIVERGED": "learnt nothing, or far less than sync from as many samples.",
    "OSCILLATES": "the loss rises between epochs, more than sync's does.",
    "WORSE": "ends with a larger loss than sync after as many samples.",
    "worse?": "ends with a larger loss than sync; more seeds would tell whether that is chance.",
}
"""What a reader must not overlook of a row's stability."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """``runs``: figures of the runs that finished, one a seed. ``failures``: a sentence for each
    that did not. ``stability``: of its loss against sync's, where both are there."""

    label: str
    runs: tuple[Figures, ...]
    failures: tuple[str, ...] = ()
    stability: Stability | None = None


def with_speed_up(rows: Sequence[Row], baseline: Row) -> list[Row]:
    """``rows`` with speed-up and efficiency, each run against the baseline's run of its seed."""
    if not baseline.runs:
        return list(rows)
    same_seed = {figures.seed: figures for figures in baseline.runs}

    def compared(figures: Figures) -> Figures:
        return against(figures, same_seed.get(figures.seed, baseline.runs[0]))

    return [replace(row, runs=tuple(map(compared, row.runs))) for row in rows]


def with_stability(rows: Sequence[Row]) -> list[Row]:
    """``rows`` with what is to be said of their losses. Sync's: of the row with as many workers, else of
    the first there is; its own options are the script's."""
    plain = [row for row in rows if row.runs and _is_plain_sync(row.runs[0])]
    return [replace(row, stability=_judged(row, plain)) for row in rows]


def _judged(row: Row, plain: Sequence[Row]) -> Stability | None:
    alike = [one for one in plain if row.runs and one.runs[0].workers == row.runs[0].workers]
    sync = (alike or plain)[:1]
    if not sync or sync[0] is row or not row.runs or row.runs[0].workers == 1:
        return None
    return judged(_shapes(row), _shapes(sync[0]))


def _is_plain_sync(figures: Figures) -> bool:
    return figures.workers > 1 and not figures.options and figures.strategy.startswith("sync")


def _shapes(row: Row) -> list[LossShape]:
    return [figures.loss for figures in row.runs if figures.loss is not None]


def mean_and_spread(
    runs: Sequence[Figures], value: Callable[[Figures], float | None]
) -> tuple[float, float | None] | None:
    """Mean over the runs that have the value, and the sample standard deviation if there are two.

    None if no run has it.
    """
    values = [got for figures in runs if (got := value(figures)) is not None]
    if not values:
        return None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return float(np.mean(values)), spread


def remarks(rows: Sequence[Row], target: Target | None = None) -> list[str]:
    """What a reader must not overlook: failures, rows slower than one worker, an unknown target."""
    found: list[str] = []
    for row in rows:
        found += [f"{row.label}: {failure}" for failure in row.failures]
        if any(map(slower_than_one, row.runs)):
            found.append(f"{row.label}: slower than one worker.")
        if any((figures.efficiency or 0) > IMPLAUSIBLE_EFFICIENCY for figures in row.runs):
            found.append(
                f"{row.label}: faster than {row.runs[0].workers} times one worker, which is not "
                "plausible: the runs were too short, or the machine had other work. Measure again."
            )
    finished = [figures for row in rows for figures in row.runs]
    if target and finished and (unknown := unknown_target(target, finished)):
        found.append(unknown)
    return found + _about_stability(rows)


def unknown_target(target: Target, finished: Sequence[Figures]) -> str:
    """That none of the ``finished`` runs logged what is aimed at; "" if one did."""
    if any(target.name in figures.metrics for figures in finished):
        return ""
    logged = sorted({name for figures in finished for name in figures.metrics})
    known = f" What was logged: {', '.join(logged)}." if logged else ""
    return (
        f"No run logged {target.name!r}: call worker.log({target.name}=...) in the script.{known}"
    )


def _about_stability(rows: Sequence[Row]) -> list[str]:
    found = [row for row in rows if row.stability is not None]
    said = [f"{row.label}: {SAYINGS[row.stability.word]}" for row in found
            if row.stability and row.stability.word in SAYINGS]  # fmt: skip
    if any(row.stability and not row.stability.name for row in found):
        said.append(
            "Stability is judged by the training loss (per cent: how far it came down, sync's fall being 100): "
            "worker.log(loss=...) of held-out data, some 20 times an epoch, says more."
        )
    return said


def check_seeds(runs: Sequence[Figures]) -> None:
    """Refuse runs that began with equal parameters although their seeds differ.

    Raises :class:`UsageError` that names the cause: the script seeds itself.
    """
    seen: dict[str, int] = {}
    for figures in runs:
        first = seen.setdefault(figures.digest, figures.seed)
        if first != figures.seed:
            raise UsageError(
                f"--seeds: seeds {first} and {figures.seed} started from the same parameters, so "
                "their spread would mean nothing. The script seeds itself (a call such as "
                "torch.manual_seed(0)): delete that call, or write {seed} among its arguments "
                "('train.py --seed {seed}') and seed with it."
            )


def label_of(figures: Figures) -> str:
    """What people call the run's row: its strategy and options, or that it had one worker."""
    if figures.workers == 1:
        return "1 worker"
    return f"{figures.strategy} {figures.options}".strip()


def rows_of(runs: Sequence[Figures]) -> list[Row]:
    """``runs`` as rows, one a strategy and number of workers, with speed-up where one had one worker.

    The one-worker row comes first; the others keep the order in which they appear.
    """
    grouped: dict[tuple[int, str], list[Figures]] = {}
    for figures in runs:
        grouped.setdefault((figures.workers, label_of(figures)), []).append(figures)
    many = len({workers for workers, _ in grouped if workers > 1}) > 1
    rows = [
        Row(label=f"{label}, {n} workers" if many and n > 1 else label, runs=tuple(group))
        for (n, label), group in grouped.items()
    ]
    rows.sort(key=lambda row: row.runs[0].workers > 1)
    rows = with_stability(rows)
    return with_speed_up(rows, rows[0]) if rows and rows[0].runs[0].workers == 1 else rows
