"""``paceline report``: one HTML file about one run or several."""

from __future__ import annotations

from pathlib import Path

import click

EPILOG = """
\b
Example:
  paceline report runs/20260101-120000-train-ssp-3
  paceline report runs/20260101-120000-compare-train --out compare.html

\b
Exit codes:
  0  the report was written; its path is on stdout
  2  no run there, or one that this version cannot read
"""


@click.command(context_settings={"max_content_width": 100}, epilog=EPILOG)
@click.argument("runs", nargs=-1, required=True, type=Path, metavar="RUN...")
@click.option("--out", type=Path, metavar="FILE", help="[default: report.html in RUN, or here]")
@click.option("--target", metavar="NAME=VALUE", help="Time until a logged metric reached it.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print all figures as JSON instead of the path."
)
def command(runs: tuple[Path, ...], out: Path | None, target: str | None, as_json: bool) -> None:
    """Write one HTML file about RUN (a run's directory, running or finished, or a compare's).

    It works offline: loss against time and samples, a lane for each worker that shows who waits for
    whom, version lags, figures and notices. Several runs are put side by side.
    """
    from paceline.compare.export import as_json as figures_as_json
    from paceline.compare.figures import figures_of
    from paceline.compare.rows import rows_of
    from paceline.compare.target import parse_target
    from paceline.report.page import render_page
    from paceline.runs import find_runs, read_run

    aim = None if target is None else parse_target(target)
    read = [read_run(path) for given in runs for path in find_runs(given)]
    path = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    path.write_text(render_page(read, target=aim), encoding="utf-8")
    if as_json:
        rows = rows_of([figures_of(run, aim) for run in read])
        click.echo(figures_as_json(rows, aim, report=str(path)))
    else:
        click.echo(path)
