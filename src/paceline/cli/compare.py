"""``paceline compare``: one script under several strategies, as a table and a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from paceline.compare.target import Target
    from paceline.launch.campaign import Campaign, Plan

EPILOG = """
\b
Example:
  paceline compare -n 4 --strategies sync,async,ssp:3 --target accuracy=0.97 train.py --epochs 10
  paceline compare -n 4 --try "sync accumulate=8" --try "async lr=0.1x clip_norm=2" train.py
  paceline compare -n 1,2,4 --strategies sync train.py
  paceline compare -n 32 --virtual cluster.toml --target accuracy=0.97 train.py

\b
Several hosts: compare starts its workers on this one. Run each strategy with 'paceline run --nnodes',
put the hosts' rank-*.jsonl together, and 'paceline report RUN RUN ...' (docs/hosts.md).

\b
Exit codes:
  0    every run finished
  1    a run failed; its row says so
  2    a value on the command line is wrong, or the script seeds itself under --seeds
  130  Ctrl-C; what was finished is printed and kept
"""


@click.command(
    context_settings={"allow_interspersed_args": False, "max_content_width": 100}, epilog=EPILOG
)
@click.option(
    "-n",
    "--workers",
    default="4",
    show_default=True,
    metavar="N,N,...",
    help="How many; several numbers give the speed-up curve.",
)
@click.option("--strategies", metavar="WORDS", help="[default: sync,async,ssp:3; with --try: sync]")
@click.option(
    "--try",
    "tries",
    multiple=True,
    metavar="TRIAL",
    help="A strategy, options of the Worker, a factor on lr: 'async lr=0.1x clip_norm=2'.",
)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option("--target", metavar="NAME=VALUE", help="Time until a logged metric reaches it.")
@click.option("--recipe", metavar="WORD", help="Of every run: plain, or stable (docs/recipes.md).")
@click.option("--emulate", type=Path, metavar="FILE", help="Reproduce a cluster.toml's timing.")
@click.option(
    "--virtual", type=Path, metavar="FILE", help="Train in the simulated time of a cluster.toml."
)
@click.option("--out", type=Path, metavar="DIR", help="Where to record. [default: runs/...]")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.argument("script", type=Path)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(as_json: bool, quiet: bool, target: str | None, **options: Any) -> None:
    """Run SCRIPT with one worker, then under each strategy, and compare: speed, waiting, quality.

    Every run trains on as many samples. Each --try is a row: any Worker options, so that the script
    stays as it is. {seed} in ARGS is replaced. The table goes to stdout,
    progress to stderr, the workers' output to a log beside each run.
    """
    from paceline.compare.target import parse_target
    from paceline.launch.campaign import carry_out
    from paceline.launch.run import run

    aim = None if target is None else parse_target(target)
    plan = _plan(options)
    campaign = carry_out(
        plan,
        aim,
        execute=lambda request, log: run(request, stdout=log, stderr=log),
        tell=(lambda _: None) if quiet else (lambda text: click.echo(text, err=True)),
    )
    _print(campaign, plan, aim, as_json)
    sys.exit(130 if campaign.interrupted else int(campaign.failed))


def _plan(options: dict[str, Any]) -> Plan:
    import time

    from paceline.launch.campaign import Plan, sizes_from, trials_from

    script = options["script"]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    out = options.pop("out") or Path("runs") / f"{stamp}-compare-{script.stem}"
    tries, words = options.pop("tries"), options.pop("strategies")
    usual = "sync" if tries else "sync,async,ssp:3"
    trials = trials_from(usual if words is None else words, tries)
    sizes = sizes_from(options.pop("workers"))
    return Plan(**options, sizes=sizes, out=out, trials=trials)


def _print(campaign: Campaign, plan: Plan, target: Target | None, as_json: bool) -> None:
    from paceline.compare.export import as_json as figures_as_json
    from paceline.compare.table import render

    rows = campaign.rows()
    path = _write_report(campaign, plan, target)
    if as_json:
        click.echo(figures_as_json(rows, target, report=path, notes=campaign.notes))
        return
    click.echo(render(rows, target, campaign.notes))
    click.echo(f"\nreport: {path}" if path else "\nNo run finished: no report.")


def _write_report(campaign: Campaign, plan: Plan, target: Target | None) -> str:
    if not campaign.runs:
        return ""
    from paceline.report.page import render_page

    path = plan.out / "report.html"
    path.write_text(render_page(campaign.runs, target=target), encoding="utf-8")
    return str(path)
