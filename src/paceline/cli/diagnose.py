"""``paceline diagnose``: who waits for whom in a run, why, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from paceline.diagnose.findings import Diagnosis

EPILOG = """
\b
Example:
  paceline diagnose runs/20260101-120000-train-sync
  paceline diagnose runs/20260101-120000-train-sync --what-if rank:2 --what-if strategy:ssp:8
  paceline diagnose runs/20260101-120000-train-sync --json --fail-on major

\b
Exit codes:
  0    nothing found at or above --fail-on
  1    a finding at or above --fail-on (minor: 5 % of the time, major: 20 %)
  2    a value on the command line is wrong, or there is no run that can be read
  3    undecided: the evidence is too thin (or nothing is recorded yet), and the verdict says why
  130  Ctrl-C
"""

EXIT_FINDING, EXIT_UNDECIDED = 1, 3


@click.command(context_settings={"max_content_width": 100}, epilog=EPILOG)
@click.argument("run", type=Path)
@click.option(
    "--what-if", "questions", multiple=True, metavar="CHANGE",
    help="rank:2 (as fast as the others), link:0.5, link:2:0.5, strategy:async.",
)  # fmt: skip
@click.option(
    "--fail-on", type=click.Choice(["info", "minor", "major"]), default="minor", show_default=True,
    help="The least severe finding that makes the exit code 1.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(run: Path, questions: tuple[str, ...], fail_on: str, as_json: bool) -> None:
    """Say what is wrong with RUN (a run's directory, finished or running, or a directory of
    torch.profiler's Chrome traces, one a rank), and what to do about it.

    Names the slow worker and where its time goes, a stale worker, a slow link, uneven work, too many
    threads, a bottleneck in exchange or server, an unstable loss; says 'undecided' where the evidence
    is thin. Reads only traces: a directory that was copied elsewhere will do.
    """
    from paceline.diagnose.text import as_json as in_json
    from paceline.diagnose.text import render

    diagnosis = _diagnosed(run, questions)
    click.echo(in_json(diagnosis) if as_json else render(diagnosis))
    if diagnosis.at_least(fail_on):  # type: ignore[arg-type]
        raise SystemExit(EXIT_FINDING)
    raise SystemExit(EXIT_UNDECIDED if diagnosis.status == "undecided" else 0)


def _diagnosed(path: Path, questions: tuple[str, ...]) -> Diagnosis:
    from paceline.diagnose.chrome import diagnose_profiles, profile_files
    from paceline.diagnose.verdict import diagnose, nothing_yet
    from paceline.runs import NothingRecordedError, read_run

    path, is_run = _the_run_at(path)
    if not is_run and profile_files(path):
        return diagnose_profiles(path, questions)
    try:
        return diagnose(read_run(path), questions)
    except NothingRecordedError:
        return nothing_yet(str(path))


def _the_run_at(path: Path) -> tuple[Path, bool]:
    """The one run at ``path``, and whether it is a run's directory; several inside are named."""
    from paceline.errors import UsageError
    from paceline.runs import find_runs, rank_files

    if (path / "run.json").is_file():
        return path, True
    inside = find_runs(path)
    if len(inside) > 1:
        named = "\n".join(f"  paceline diagnose {one}" for one in inside)
        raise UsageError(f"{path} holds {len(inside)} runs. Diagnose one of them:\n{named}")
    return inside[0], bool(rank_files(inside[0]))
