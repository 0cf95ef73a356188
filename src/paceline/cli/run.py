"""``paceline run``: the command line of :mod:`paceline.launch.run`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

OVERRIDES = (
    "accumulate", "clip_norm", "precision", "batch_norm", "recipe", "compress", "evict_after_s",
    "group_size",
)  # fmt: skip
HOST_WORDS = ("nnodes", "node_rank", "master_addr", "master_port", "key", "shards")
EPILOG = """
\b
Example:
  paceline run -n 4 --strategy ssp:3 --seed 1 train.py --lr 0.1 --name run-{seed}
  paceline run --virtual cluster.toml --strategy async train.py

\b
On two hosts (the words are torchrun's; docs/hosts.md), and with --node-rank 1 on the other:
  paceline run --nnodes 2 --node-rank 0 --master-addr host0 --key run.key -n 4 train.py

\b
Exit codes:
  0    the run finished (workers lost on the way are named)
  1    a worker failed; the others were stopped
  2    a value on the command line is wrong; nothing was started
  3    stopped: a worker or the server was lost, and the strategy needs it
  130  Ctrl-C (143: SIGTERM); what was recorded is kept
"""


@click.command(
    context_settings={"allow_interspersed_args": False, "max_content_width": 100}, epilog=EPILOG
)
@click.option("-n", "--workers", type=int, help="Worker processes. [default: 1, or the cluster's]")
@click.option(
    "--strategy",
    metavar="WORD",
    help="sync, async, ssp:3, backup:1, hybrid:async, local:8, diloco:50, ...",
)
@click.option("--accumulate", type=click.IntRange(1), help="Micro-batches that make one update.")
@click.option(
    "--clip-norm", type=click.FloatRange(0, min_open=True), help="Largest norm of a gradient."
)
@click.option(
    "--precision", type=click.Choice(["fp32", "bf16", "fp16"]), help="What forward computes in."
)
@click.option(
    "--batch-norm",
    type=click.Choice(["local", "sync", "freeze"]),
    help="Whose batches its statistics are of.",
)
@click.option(
    "--recipe", metavar="WORD", help="plain, or stable: what is done about old gradients."
)
@click.option(
    "--compress",
    metavar="WORD",
    help="topk:0.01, powersgd:4, int8, ...: of gradients on their way; topk:0.01,pull=int8: and of parameters.",
)
@click.option(
    "--evict-after",
    "evict_after_s",
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="Silence after which a worker is given up.",
)
@click.option(
    "--group-size",
    type=click.IntRange(1),
    metavar="N",
    help="Workers of a group under hybrid:... [default: those of a host]",
)
@click.option("--lr-factor", type=float, help="Multiplies every learning rate.")
@click.option("--emulate", type=Path, metavar="FILE", help="Reproduce a cluster.toml's timing.")
@click.option(
    "--virtual",
    type=Path,
    metavar="FILE",
    help="Train in the simulated time of a cluster.toml, all workers in one process.",
)
@click.option("--nnodes", type=click.IntRange(1), metavar="N", help="Hosts, with -n workers each.")
@click.option(
    "--node-rank", type=click.IntRange(0), metavar="I", help="This host's number, from 0."
)
@click.option("--master-addr", metavar="HOST", help="Host 0, as all hosts reach it.")
@click.option(
    "--master-port", type=click.IntRange(1, 65534), metavar="PORT", help="[default: 29500]"
)
@click.option(
    "--key", type=Path, metavar="FILE", help="Made by `paceline key`, equal on all hosts."
)
@click.option(
    "--shards", metavar="N|hosts", help="Hosts that hold a part of the parameters. [default: 1]"
)
@click.option("--out", type=Path, metavar="DIR", help="Where to record. [default: runs/...]")
@click.option("--seed", type=int, help="Of random, numpy, torch; {seed} in ARGS. [default: 0]")
@click.option("--threads", type=int, help="Threads of a worker. [default: cores // workers]")
@click.option(
    "--resume", type=Path, metavar="RUN", help="Go on from the newest checkpoint of that run."
)
@click.option("--quiet", is_flag=True, help="Say only what went wrong.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the summary; workers' output to stderr."
)
@click.argument("script", type=Path, required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(as_json: bool, **options: Any) -> None:
    """Run SCRIPT on several worker processes, of this machine or of several, and watch over them.

    What is said here beats what the script says. ARGS go to the script untouched, except that
    {seed} in them is replaced. With --resume, SCRIPT and ARGS are by default those of that run. Each
    line of output carries the rank it came from; the launcher's own words go to stderr.
    """
    if options["script"] is None and options["resume"] is None:
        raise click.UsageError("Missing argument 'SCRIPT'.")
    from paceline.launch.run import run

    result = run(_request(options), stdout=sys.stderr if as_json else None)
    if as_json:
        click.echo((result.out / "run.json").read_text(), nl=False)
    sys.exit(result.exit_code)


def _request(options: dict[str, Any]) -> Any:
    from paceline.launch.hosts import hosts_from
    from paceline.launch.request import RunRequest

    if options["resume"] is not None:
        from paceline.launch.continuing import continued

        options = continued(options)
    options["seed"] = options["seed"] or 0
    options["lr_factor"] = 1.0 if options["lr_factor"] is None else options["lr_factor"]
    hosts = hosts_from(options)
    for name in HOST_WORDS:
        del options[name]
    overrides = {name: options.pop(name) for name in OVERRIDES}
    workers = options.pop("workers")
    return RunRequest(
        **options,
        hosts=hosts,
        workers=_cluster_size(
            options["emulate"] or options["virtual"], 1 if hosts is None else hosts.count
        )
        if workers is None
        else workers,
        overrides={name: value for name, value in overrides.items() if value is not None},
    )


def _cluster_size(cluster: Path | None, hosts: int) -> int:
    """Workers on each of ``hosts``, if all that ``cluster`` describes take part."""
    if cluster is None:
        return 1
    from paceline.launch.hosts import on_each
    from paceline.simulate.cluster import ClusterModel

    return on_each(hosts, ClusterModel.load(cluster).count, str(cluster))
