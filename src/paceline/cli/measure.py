"""``paceline measure``: what a group's links, all-reduces and steps are like, as a cluster.toml."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from signal import SIGTERM, default_int_handler, signal
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from paceline.measure.result import Measurement
    from paceline.measure.sentences import Judged
    from paceline.measure.steps import StepModel
    from paceline.runs import Run

EPILOG = """
\b
Examples:
  paceline measure -n 4                          four processes of this host
  paceline measure -n 4 train.py --epochs 1      and the times of that script's steps
  torchrun --nnodes 4 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint host0:29500 \\
      -m paceline.cli measure --from runs/train  on every host
  RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 paceline measure
                                                 the same without torchrun: here on the second of two
  paceline simulate cluster.toml                 what the strategies would make of it

\b
Exit codes:
  0    measured; nothing stands out
  1    a link, port, host, or the machine of a rank is slow and named
  2    a value on the command line is wrong, or the group failed
  3    undecided: the links cannot be judged, and the verdict says why
       (1 and 3 with -n only: under another launcher 0, because to it they would be failures)
  130  Ctrl-C; what had been measured is printed and written
"""

EXIT_FINDING, EXIT_UNDECIDED, EXIT_INTERRUPTED = 1, 3, 130
ALGORITHMS = "gloo,ring,tree,halving-doubling,hierarchical,server"
SERVER = "server"
SIZE_BYTES = 100e6


@click.command(
    context_settings={"allow_interspersed_args": False, "max_content_width": 100}, epilog=EPILOG
)
@click.option("-n", "--workers", type=click.IntRange(2, 64), help="Start so many here.")
@click.option("--out", type=Path, default=Path("cluster.toml"), show_default=True, metavar="FILE")
@click.option("--from", "source", type=Path, metavar="RUN", help="Step times that RUN recorded.")
@click.option("--size-bytes", type=click.FloatRange(1), metavar="BYTES",
              help="Of the parameters. [default: the run's, else 100e6]")  # fmt: skip
@click.option("--algorithms", default=ALGORITHMS, show_default=True, metavar="WORDS",
              help="All-reduces to sweep; server: that plane (needs -n); 'none': no sweep.")  # fmt: skip
@click.option("--per-node", type=click.IntRange(1), help="Ranks of a node, for hierarchical.")
@click.option("--picture", type=Path, metavar="FILE", help="A heat map: .svg, or .html for both.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
@click.argument("script", type=Path, required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(**options: Any) -> None:
    """Measure latency and bandwidth of every link of a group, and its all-reduces; name what is slow.

    With -n the group is started here. Without, this process joins the one that its launcher describes
    (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT): start it on every rank; rank 0 prints and writes. With
    SCRIPT a short run of it on as many workers gives the step times (it is ended after 60 steps).
    """
    _check(options)
    plan = _plan(options)
    if options["workers"] is None:
        _as_member(options, plan)
    else:
        _as_launcher(options, plan)


def _check(options: dict[str, Any]) -> None:
    from paceline.errors import UsageError, bad_value

    script, picture = options["script"], options["picture"]
    if script is not None and (options["workers"] is None or options["source"]):
        raise UsageError(
            "A SCRIPT is run by 'measure -n N' and without --from. Under another launcher, or with a run "
            "at hand, give --from RUN."
        )
    if script is not None and not script.is_file():
        raise bad_value("script", str(script), "a Python file")
    if picture is not None and picture.suffix not in (".svg", ".html"):
        raise bad_value("picture", str(picture), "a name that ends in .svg or .html")
    if not isfinite(options["size_bytes"] or 1):
        raise bad_value("size-bytes", options["size_bytes"], "a finite number of bytes")
    for path in filter(None, (options["out"], picture)):
        if path.is_dir() or not path.resolve().parent.is_dir():
            raise bad_value("out", str(path), "a file in a directory that exists")


def _plan(options: dict[str, Any]) -> dict[str, Any]:
    from paceline.errors import bad_value
    from paceline.measure.all_reduce import check_nodes

    workers = options["workers"] or _world_size()
    words = [] if options["algorithms"] == "none" else options["algorithms"].split(",")
    if unknown := [word for word in words if word not in ALGORITHMS.split(",")]:
        raise bad_value("algorithms", unknown[0], f"some of {ALGORITHMS}, or none")
    per_node = options["per_node"] or _ranks_of_a_node(options["workers"], workers)
    if options["per_node"] is None and per_node == 1:
        words = [word for word in words if word != "hierarchical"]
    check_nodes(workers, per_node)
    _check_source(options["source"], workers)
    options["server"] = SERVER in words and options["workers"] is not None
    return {"algorithms": tuple(word for word in words if word != SERVER), "per_node": per_node}


def _check_source(source: Path | None, workers: int) -> None:
    """Before anything is measured: the run can be read, and has no rank that the group lacks."""
    from paceline.errors import bad_value
    from paceline.runs import read_run

    if source is not None and (recorded := read_run(source).setup.world_size) > workers:
        allowed = f"{recorded}, as many as {source} has recorded"
        raise bad_value(
            "workers", workers, allowed, "Its slow ranks would be missing in the group."
        )


def _ranks_of_a_node(started_here: int | None, workers: int) -> int:
    """As the launcher says; where all are on one host two make a node, so that there is something to see."""
    import os

    said = "" if started_here else os.environ.get("LOCAL_WORLD_SIZE", "")
    if said.isdigit() and 1 < int(said) < workers and workers % int(said) == 0:
        return int(said)
    return 2 if workers % 2 == 0 and workers > 2 else 1


def _world_size() -> int:
    import os

    from paceline.errors import UsageError

    size = os.environ.get("WORLD_SIZE", "")
    if not size.isdigit() or int(size) < 2 or not os.environ.get("RANK", "").isdigit():
        raise UsageError(
            "No group: give -n 4 to start one on this host, or start this on every rank with torchrun (RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT are read)."
        )
    return int(size)


def _as_member(options: dict[str, Any], plan: dict[str, Any]) -> None:
    """One of the ranks that another launcher started; rank 0 concludes. What is found is in what it prints:
    to a launcher any other exit code than 0 is a failure, of which it makes a page of noise."""
    import os

    from paceline.launch.group_member import GroupPlan, join

    rank, meeting = int(os.environ["RANK"]), os.environ.get("MASTER_ADDR", "")
    click.echo(f"paceline: rank {rank} of {_world_size()} meets the others at {meeting}", err=True)
    measured = join(rank, _world_size(), GroupPlan(**plan), _tell)
    if rank == 0:
        _conclude(options, measured, interrupted=False)


def _as_launcher(options: dict[str, Any], plan: dict[str, Any]) -> None:
    from paceline.launch.local_group import said_by_group

    signal(SIGTERM, default_int_handler)  # as Ctrl-C: members end, what was measured is kept
    click.echo(f"paceline: measuring the links of {options['workers']} ranks", err=True)
    said = said_by_group("paceline.launch.group_member", options["workers"], plan)
    measured, interrupted = _collected(said)
    if options["server"] and not interrupted:
        measured, interrupted = _with_server(measured, options["workers"])
    sys.exit(_conclude(options, measured, interrupted))


def _collected(said: Iterator[dict[str, Any]]) -> tuple[Measurement, bool]:
    """What was measured, and whether Ctrl-C cut it short."""
    from paceline.measure.result import Measurement, part

    measured = Measurement()
    try:
        _tell("starting the group")
        for record in said:
            measured = part(measured, record)
            _tell(_progress(record, measured))
    except KeyboardInterrupt:
        return measured, True
    finally:
        _tell("")
    return measured, False


def _with_server(measured: Measurement, workers: int) -> tuple[Measurement, bool]:
    """The same with the server plane's times, if it can be timed, and whether Ctrl-C cut that short."""
    from dataclasses import replace

    from paceline.errors import PacelineError
    from paceline.launch.server_sweep import time_server

    _tell("server plane")
    try:
        return replace(measured, server=tuple(time_server(workers))), False
    except PacelineError as error:
        click.echo(f"paceline: {error}", err=True)
        return measured, False
    except KeyboardInterrupt:
        return replace(measured, complete=False), True
    finally:
        _tell("")


def _progress(record: dict[str, Any], measured: Measurement) -> str:
    if "timing" in record:
        return (
            f"all-reduce: {record['timing']['algorithm']}, {record['timing']['size_bytes']} bytes"
        )
    return f"links: pass {len(measured.alphas_s) + 1}"


def _tell(text: str) -> None:
    """One line of progress, where somebody may be watching."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}", nl=False, err=True)


def _conclude(options: dict[str, Any], measured: Measurement, interrupted: bool) -> int:
    """Print and write; the exit code."""
    from paceline.measure.cluster_file import cluster_toml
    from paceline.measure.sentences import judge
    from paceline.measure.text import as_json, render

    if not measured.links:
        return EXIT_INTERRUPTED
    run = None if interrupted else _recorded(options)
    steps = None if run is None else _steps(run)
    judged = judge(measured)
    size_bytes = options["size_bytes"] or (SIZE_BYTES if run is None else run.setup.parameter_bytes)
    options["out"].write_text(cluster_toml(measured, judged, steps, size_bytes), encoding="utf-8")
    _picture(options["picture"], measured, judged)
    if options["as_json"]:
        click.echo(as_json(measured, judged, steps, str(options["out"])))
    else:
        written = str(options["out"])
        click.echo(f"{render(measured, judged, steps, written)}\n\nwritten: {written}")
    return EXIT_INTERRUPTED if interrupted else _exit_code(judged, steps)


def _exit_code(judged: Judged, steps: StepModel | None) -> int:
    from paceline.measure.headline import slow_machines

    if judged.slow or slow_machines(steps):
        return EXIT_FINDING
    return EXIT_UNDECIDED if judged.doubts else 0


def _recorded(options: dict[str, Any]) -> Run | None:
    """The run whose steps count, if one is wanted."""
    import tempfile

    from paceline.launch.step_probe import probe
    from paceline.runs import read_run

    if options["source"] is not None:
        return read_run(options["source"])
    if options["script"] is None:
        return None
    _tell(f"running {options['script']} for its step times")
    with tempfile.TemporaryDirectory(prefix="paceline-") as name:
        run = probe(options["script"], options["args"], options["workers"], Path(name) / "run")
    _tell("")
    return run


def _steps(run: Run) -> StepModel:
    from paceline.diagnose.origin import origin
    from paceline.measure.steps import step_model
    from paceline.simulate.recorded import recorded_times

    return step_model(recorded_times(run).own_s, origin=origin(run))


def _picture(path: Path | None, measured: Measurement, judged: Judged) -> None:
    from paceline.report.heat import heat_page, heat_svg

    if path is not None:
        drawn = heat_svg(measured) if path.suffix == ".svg" else heat_page(measured, judged)
        path.write_text(drawn, encoding="utf-8")
