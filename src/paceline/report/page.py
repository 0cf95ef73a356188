"""Puts figures, tables and notices of runs into one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paceline.compare.columns import Column, cause_columns, result_columns
from paceline.compare.figures import figures_of, interval
from paceline.compare.rows import Row, label_of, remarks, rows_of
from paceline.compare.target import Target
from paceline.report.curves import loss_chart, metric_chart, metric_names
from paceline.report.drifts import COLUMNS as DRIFT_COLUMNS
from paceline.report.drifts import drift_section
from paceline.report.health import COLUMNS, health_sections
from paceline.report.lags import lags_chart
from paceline.report.lanes import lanes_of
from paceline.report.speed_up import speed_up_charts
from paceline.report.verdicts import verdicts_of
from paceline.runs import Run

MAX_NOTICES = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """``at``: seconds since the run's first window, as text."""

    run: str
    at: str
    text: str


def render_page(runs: Sequence[Run], *, target: Target | None = None) -> str:
    """The report about ``runs`` as HTML. Runs of one strategy count as its seeds.

    Under 2 MB whatever the length of the runs: curves are thinned, lanes show a slice.
    """
    rows = rows_of([figures_of(run, target) for run in runs])
    labelled = _by_label(rows, runs)
    lags = lags_chart(labelled)
    environment = Environment(
        loader=PackageLoader("paceline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = Markup
    return environment.get_template("page.html.j2").render(
        title=_title(rows),
        subtitle=_subtitle(runs),
        setups=[_setup(label, group[0]) for label, group in labelled.items()],
        tables=[
            _table(rows, columns) for columns in (result_columns(rows, target), cause_columns(rows))
        ],
        verdicts=verdicts_of(labelled),
        remarks=[*(run.missing for run in runs if run.missing), *remarks(rows, target)],
        seeds=max(len(row.runs) for row in rows),
        curves=[
            loss_chart(labelled),
            *[metric_chart(labelled, n) for n in metric_names(labelled)],
            *speed_up_charts(rows),
        ],
        lanes=lanes_of(labelled),
        lags=lags,
        drift=drift_section(labelled),
        drift_columns=DRIFT_COLUMNS,
        healths=health_sections(labelled),
        health_columns=COLUMNS,
        notices=[notice for run in runs for notice in _notices(run)][:MAX_NOTICES],
        unfinished=[run.name for run in runs if any(rank.close is None for rank in run.ranks)],
    )


def _by_label(rows: Sequence[Row], runs: Sequence[Run]) -> dict[str, list[Run]]:
    named = {str(run.directory): run for run in runs}
    return {row.label: [named[figures.run] for figures in row.runs] for row in rows}


def _title(rows: Sequence[Row]) -> str:
    if len(rows) > 1:
        return "paceline: " + ", ".join(row.label for row in rows)
    figures = rows[0].runs[0]
    workers = "" if figures.workers == 1 else f", {figures.workers} workers"
    return f"paceline: {label_of(figures)}{workers}"


def _subtitle(runs: Sequence[Run]) -> str:
    """What was trained on how many workers, in one line."""
    most = max(runs, key=lambda run: run.setup.world_size)
    setup, request = most.setup, most.summary.get("request", {})
    workers = "1 worker" if setup.world_size == 1 else f"{setup.world_size} workers"
    parts = [
        Path(request["script"]).name if "script" in request else "",
        workers,
        f"{setup.parameters:,} parameters",
        setup.optimizer,
        _timing(request),
        str(most.summary.get("started", ""))[:16].replace("T", " "),
    ]
    return " · ".join(filter(None, parts))


def _timing(request: Mapping[str, Any]) -> str:
    """Whose time it was, if not the machine's own."""
    if request.get("virtual"):
        return f"in virtual time, by {Path(request['virtual']).name}"
    return f"timing of {Path(request['emulate']).name} emulated" if request.get("emulate") else ""


def _setup(label: str, run: Run) -> Mapping[str, str]:
    setup = run.setup
    return {
        "row": label,
        "run": run.name,
        "strategy": f"{setup.strategy} ({setup.topology})",
        "workers": f"{setup.world_size} x {setup.threads} threads",
        "accumulate": str(setup.accumulate),
        "optimizer": setup.optimizer,
        "parameters": f"{setup.parameters:,}",
        "types": setup.types,
        "seed": str(setup.seed),
    }


def _table(rows: Sequence[Row], columns: Sequence[Column]) -> Mapping[str, object]:
    cells = [
        [row.label, *[column.cell(row.runs) if row.runs else "failed" for column in columns]]
        for row in rows
    ]
    return {"columns": columns, "rows": cells}


def _notices(run: Run) -> list[Notice]:
    first_s, _ = interval(run)
    return [
        Notice(run=run.name, at=f"{note.time_s - first_s:.1f} s", text=_said(note.rank, note.text))
        for note in run.notes
    ]


def _said(rank: int, text: str) -> str:
    return f"rank {rank}: {text}" if rank >= 0 and f"rank {rank}" not in text else text
