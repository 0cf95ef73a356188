"""``paceline report``: one HTML file about one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from paceline.runs import Run

EPILOG = """
\b
Example:
  paceline report runs/20260101-120000-train-ssp-3
  paceline report runs/20260101-120000-compare-train --out compare.html
  paceline report runs/20260101-120000-train-ssp-3 --perfetto lanes.json   (open in ui.perfetto.dev)

\b
Exit codes:
  0  the report was written; its path is on stdout
  2  no run there, one that this version cannot read, or --perfetto with several runs
"""


@click.command(context_settings={"max_content_width": 100}, epilog=EPILOG)
@click.argument("runs", nargs=-1, required=True, type=Path, metavar="RUN...")
@click.option("--out", type=Path, metavar="FILE", help="[default: report.html in RUN, or here]")
@click.option("--target", metavar="NAME=VALUE", help="Time until a logged metric reached it.")
@click.option(
    "--perfetto", type=Path, metavar="FILE", help="Write all lanes for ui.perfetto.dev, instead."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print all figures (with --perfetto: what was written) as JSON.",
)
def command(
    runs: tuple[Path, ...],
    out: Path | None,
    target: str | None,
    perfetto: Path | None,
    as_json: bool,
) -> None:
    """Write one HTML file about RUN (a run's directory, running or finished, or a compare's).

    It works offline: what is wrong and what to do about it, figures, a lane for each worker that shows
    who waits for whom, loss against time and samples, version lags, notices. Several runs are put side
    by side.
    """
    from paceline.compare.export import as_json as figures_as_json
    from paceline.compare.figures import figures_of
    from paceline.compare.rows import remarks, rows_of
    from paceline.compare.target import parse_target
    from paceline.report.page import render_page
    from paceline.runs import find_runs, read_run

    aim = None if target is None else parse_target(target)
    read = [read_run(path) for given in runs for path in find_runs(given)]
    if perfetto is not None:
        _write_perfetto(perfetto, read, as_json)
        return
    path = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    path.write_text(render_page(read, target=aim), encoding="utf-8")
    rows = rows_of([figures_of(run, aim) for run in read])
    for remark in [*(run.missing for run in read if run.missing), *remarks(rows, aim)]:
        click.echo(f"paceline: {remark}", err=True)
    if as_json:
        click.echo(figures_as_json(rows, aim, report=str(path)))
    else:
        click.echo(path)


def _write_perfetto(path: Path, runs: list[Run], as_json: bool) -> None:
    import json

    from paceline.errors import UsageError
    from paceline.report.perfetto import write_perfetto

    if len(runs) != 1:
        raise UsageError(
            f"--perfetto shows one run, and {len(runs)} were given. Give the directory of one run."
        )
    with path.open("w", encoding="utf-8") as file:
        count = write_perfetto(runs[0], file)
    said = {"schema": 1, "perfetto": str(path), "run": str(runs[0].directory), "events": count}
    click.echo(json.dumps(said, indent=2) if as_json else path)
