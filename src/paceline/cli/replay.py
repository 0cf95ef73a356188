"""``paceline replay``: a recorded run once more, in its recorded order, bit for bit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from paceline.replay.verdict import Replayed

EPILOG = """
\b
Examples:
  paceline replay runs/20260101-120000-train-async
  paceline replay runs/20260101-120000-train-async --until 120

\b
Exit codes:
  0    everything was as recorded, to the run's end or to where it was to stop
  1    something differs (the sentence names the first difference), or a worker failed
  2    a value on the command line is wrong, or the run cannot be replayed
  3    a worker or the server was lost, which they were not in the recorded run
  130  Ctrl-C (143: SIGTERM); what was recorded is kept
"""


@click.command(context_settings={"max_content_width": 100}, epilog=EPILOG)
@click.argument("run", type=Path, metavar="RUN")
@click.option("--until", type=int, metavar="VERSION", help="Stop when this version is made.")
@click.option(
    "--out",
    type=Path,
    metavar="DIR",
    help="Where to record. [default: RUN-replay, RUN-replay-2, ...]",
)
@click.option("--quiet", is_flag=True, help="No words but the workers' and how it ended.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON; all else to stderr.")
def command(run: Path, until: int | None, out: Path | None, quiet: bool, as_json: bool) -> None:
    """Run RUN (a run's directory) again on real workers, and compare with what it recorded.

    Whoever was served first then is served first now, so an asynchronous run comes out bit for bit. With
    --until everybody stops when that version is made: a checkpoint and a table say who stood where.
    The first difference stops it too. Nothing is written into RUN.
    """
    from paceline.replay.again import replay

    replayed = replay(
        run,
        until=until,
        out=out,
        quiet=quiet,
        tell=lambda text: click.echo(f"paceline: {text}", err=True),
        stdout=sys.stderr if as_json else None,
    )
    click.echo(json.dumps(replayed.as_json(), indent=2) if as_json else _told(replayed))
    sys.exit(replayed.exit_code)


def _told(replayed: Replayed) -> str:
    from paceline.replay.standing import as_table

    lines = [replayed.sentence]
    if replayed.standings:
        lines += ["", as_table(replayed.standings)]
    if replayed.checkpoint is not None:
        lines += ["", f"checkpoint: {replayed.checkpoint}"]
    return "\n".join(lines)
