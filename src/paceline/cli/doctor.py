"""``paceline doctor``: what of this machine slows training down, before anything is trained."""

from __future__ import annotations

import sys

import click

EPILOG = """
\b
Examples:
  paceline doctor
  paceline doctor --hosts 4 --json       this machine as one of four
  GLOO_SOCKET_IFNAME=eth1 paceline doctor --quick

\b
Exit codes:
  0    nothing found
  1    something was found; each finding says what to do
  2    a value on the command line is wrong
  130  Ctrl-C
"""


@click.command(context_settings={"max_content_width": 100}, epilog=EPILOG)
@click.option("--hosts", type=click.IntRange(1), default=1, show_default=True,
              help="On how many hosts you want to train.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Look only: measure no speeds.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(hosts: int, quick: bool, as_json: bool) -> None:
    """Look at this machine: cores and quota against threads, load, memory, network, NVIDIA cards.

    Then a few processes copy, compute and all-reduce for a few seconds: does a second one pay? Takes
    at most 20 seconds and changes nothing.
    """
    from paceline.doctor.checks import findings
    from paceline.doctor.text import as_json as in_json
    from paceline.doctor.text import render
    from paceline.launch.examining import examine

    if not quick and sys.stderr.isatty():
        click.echo("\r\033[Kmeasuring, about ten seconds", nl=False, err=True)
    facts = examine(hosts=hosts, measured=not quick)
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)
    found = findings(facts)
    click.echo(in_json(facts, found) if as_json else render(facts, found))
    raise SystemExit(int(bool(found)))
