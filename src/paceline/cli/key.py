"""``paceline key``: a key by which the hosts of a run know each other."""

from __future__ import annotations

from pathlib import Path

import click

EPILOG = """
\b
Example:
  paceline key run.key
  scp run.key host1:
  paceline run --nnodes 2 --node-rank 0 --master-addr host0 --key run.key -n 4 train.py

\b
Exit codes:
  0    the key was made
  2    the file exists, or cannot be written
"""


@click.command(context_settings={"max_content_width": 100}, epilog=EPILOG)
@click.argument("file", type=Path)
@click.option("--json", "as_json", is_flag=True, help="Print where it is as JSON.")
def command(file: Path, as_json: bool) -> None:
    """Write a new random key to FILE, which only you can read (mode 0600).

    Whoever has it may take part in a run: copy it to every host by a way that you trust, and name the
    file there. The key itself is never on a command line, in the environment, in a log or a trace.
    """
    from paceline.transport.keys import make_key

    make_key(file)
    if as_json:
        import json

        click.echo(json.dumps({"key": str(file.resolve())}))
    else:
        click.echo(f"{file}: a new key. Copy it to every host of the run (scp keeps mode 0600).")
