"""``paceline advise``: which strategy to choose for this script on that cluster, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from paceline.advise.advice import Advice
    from paceline.advise.pace import Pace
    from paceline.compare.target import Target
    from paceline.launch.probing import Bench, Probes

EPILOG = """
\b
Examples:
  paceline advise --for cluster.toml --target accuracy=0.95 train.py
  paceline advise -n 4 --epochs 10 --seeds 3 train.py --epochs {epochs} --seed {seed}
  paceline advise --for cluster.toml --only async,ssp --seeds 1 train.py    (fewer probes)
  paceline advise --for cluster.toml --memory 80e9 train.py

\b
Exit codes:
  0    there is a recommendation
  1    nothing can be recommended: nobody reached the target, or the model does not fit
  2    a value on the command line is wrong, or the script logs nothing to judge by
  130  Ctrl-C; finished probes are kept, and a second call with the same --out goes on
"""


@click.command(
    context_settings={"allow_interspersed_args": False, "max_content_width": 100}, epilog=EPILOG
)
@click.option("-n", "--workers", type=click.IntRange(2), help="[default: the cluster's, or 4]")
@click.option(
    "--for",
    "cluster",
    type=Path,
    metavar="FILE",
    help="The cluster.toml that is meant. [default: this machine]",
)
@click.option("--epochs", type=click.IntRange(1), help="Replaces {epochs} in ARGS.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--only",
    metavar="WORDS",
    help="Fewer probes: some of accumulate,backup,async,ssp,local. [default: all]",
)
@click.option(
    "--target", "aim", metavar="NAME=VALUE", help="[default: what sync reaches at its end]"
)
@click.option(
    "--virtual/--real",
    default=None,
    help="Probe in the cluster's virtual time, or on this machine. [default: virtual with --for]",
)
@click.option(
    "--memory", type=click.FloatRange(1), metavar="BYTES", help="Of one device: does the model fit?"
)
@click.option(
    "--out", type=Path, metavar="DIR", help="Keeps the probes. [default: runs/advise-...]"
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.argument("script", type=Path)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(**options: Any) -> None:
    """Find out which strategy trains SCRIPT to a target soonest.

    Probes one worker and sync, then what the simulation of the cluster says could be faster: async and
    ssp with lower learning rates and the stable recipe, backup, accumulation, local and diloco. Samples
    to the target come from the probes, the time of a sample from the cluster. The answer may be 'stay
    with sync'.
    """
    from paceline.compare.target import parse_target
    from paceline.launch.claim import claimed
    from paceline.launch.probing import DONE

    target = None if options["aim"] is None else parse_target(options["aim"])
    probes = _probes(options)
    with claimed(probes.bench.out, "advise", sign=f"*/{DONE}"):
        advice, pace = _advised(options, probes, target)
        report = _report(probes)
    command_line = _next(advice, options)
    if options["as_json"]:
        from paceline.advise.text import as_json

        click.echo(as_json(advice, probes.outcomes, command_line, report))
    else:
        from paceline.advise.text import render

        click.echo(render(advice, pace, command_line))
        click.echo(f"\nreport: {report}" if report else "")
    raise SystemExit(130 if probes.interrupted else int(advice.choice is None))


def _advised(
    options: dict[str, Any], probes: Probes, target: Target | None
) -> tuple[Advice, Pace | None]:
    from dataclasses import replace

    from paceline.advise.advice import Advice, advise, does_not_fit
    from paceline.advise.outcomes import usual_target
    from paceline.advise.plan import baselines, families_from, next_candidates
    from paceline.advise.untried import not_tried

    seeds, workers = options["seeds"], probes.bench.workers
    stopped = Advice(answer="Interrupted: too little is known.", target=target, choice=None)
    alone, sync = baselines(workers)
    if not probes.carry_out([alone], 1):
        return stopped, None
    if target is not None and not probes.outcomes[0].failure:
        _check_logged(target, probes)
    unfit = does_not_fit(probes.outcomes[0], options["memory"])
    if unfit is not None:
        return unfit, None
    if not probes.carry_out([alone, sync], seeds):
        return stopped, None
    pace = _pace(probes)
    target = target or usual_target(probes.of(sync))
    _check_logged(target, probes)
    families = families_from(options["only"])
    while wanted := next_candidates(
        pace, probes.outcomes, target, workers=workers, families=families
    ):
        if not probes.carry_out(wanted, seeds):
            break
    own_time = probes.bench.virtual or probes.bench.cluster is None
    found = advise(pace, probes.outcomes, target, own_time=own_time)
    left = not_tried(pace, families, cluster=_time_of(probes.bench), script=_script(probes.bench))
    return replace(found, reasons=(*found.reasons, *left)), pace


def _time_of(bench: Bench) -> list[str]:
    """The words that give another command the cluster's time."""
    if bench.cluster is None:
        return []
    return ["--virtual" if bench.virtual else "--emulate", str(bench.cluster)]


def _script(bench: Bench) -> list[str]:
    return [str(bench.script), *bench.args]


def _probes(options: dict[str, Any]) -> Probes:
    import time

    from paceline.advise.plan import families_from, most
    from paceline.errors import UsageError
    from paceline.launch.probing import Bench, Probes
    from paceline.launch.run import run

    cluster = options["cluster"]
    virtual = cluster is not None if options["virtual"] is None else options["virtual"]
    if virtual and cluster is None:
        raise UsageError("--virtual needs a cluster: give --for cluster.toml.")
    workers = _workers(options)
    script: Path = options["script"]
    bench = Bench(
        script=script, args=_args(options), workers=workers, cluster=cluster, virtual=virtual,
        out=options["out"] or Path("runs") / f"advise-{script.stem}",
    )  # fmt: skip
    probes = Probes(
        bench=bench,
        execute=lambda request, log: run(request, stdout=log, stderr=log),
        tell=(lambda _: None) if options["quiet"] else (lambda text: click.echo(text, err=True)),
        clock=time.monotonic,
        most=most(workers, families_from(options["only"])) * options["seeds"],
    )
    probes.tell(
        f"{2 * options['seeds']} probes first (one worker, sync), then as few as will do, in all at most "
        f"{probes.most}; how long, the first one tells."
    )
    return probes


def _workers(options: dict[str, Any]) -> int:
    from paceline.errors import bad_value
    from paceline.simulate.cluster import ClusterModel
    from paceline.simulate.left_out import left_out

    if options["cluster"] is None:
        return options["workers"] or 4
    model = ClusterModel.load(options["cluster"])
    workers: int = options["workers"] or model.count
    if not 2 <= workers <= model.count:
        allowed = f"2 to {model.count}, which {options['cluster']} describes"
        raise bad_value("workers", workers, allowed)
    if absent := left_out(model, workers, str(options["cluster"])):
        click.echo(f"paceline: {absent}", err=True)
    return workers


def _args(options: dict[str, Any]) -> tuple[str, ...]:
    from paceline.errors import UsageError

    args, epochs = options["args"], options["epochs"]
    asked = any("{epochs}" in arg for arg in args)
    if epochs is not None and not asked:
        raise UsageError(
            "--epochs: only the script knows how long it trains. Say where its arguments name it, as in "
            "'train.py --epochs {epochs}'."
        )
    if asked and epochs is None:
        raise UsageError("{epochs} among the arguments needs --epochs, as in --epochs 10.")
    return tuple(arg.replace("{epochs}", str(epochs)) for arg in args)


def _pace(probes: Probes) -> Pace:
    """Of the cluster that is meant; without one, of what sync recorded on this machine."""
    from dataclasses import replace

    from paceline.advise.pace import Pace
    from paceline.simulate.cluster import ClusterModel
    from paceline.simulate.recorded import recorded_times
    from paceline.simulate.recorded_ways import recorded_ways

    if probes.bench.cluster is not None:
        model = replace(ClusterModel.load(probes.bench.cluster), count=probes.bench.workers)
        return Pace(times=model, network=model.network)
    run = next(run for run in probes.runs if run.setup.world_size > 1)
    times = recorded_times(run)
    return Pace(times=times, network=recorded_ways(run, times))


def _check_logged(target: Target, probes: Probes) -> None:
    from paceline.errors import UsageError

    names = {point.name for one in probes.outcomes for point in one.points}
    if target.name not in names:
        raise UsageError(
            f"--target {target}: the script logged no {target.name!r}"
            f"{' but ' + ', '.join(sorted(names)) if names else ''}. Call worker.log({target.name}=...)."
        )


def _report(probes: Probes) -> str:
    if not probes.runs:
        return ""
    from paceline.report.page import render_page

    path = probes.bench.out / "report.html"
    path.write_text(render_page(probes.runs), encoding="utf-8")
    return str(path)


def _next(advice: Advice, options: dict[str, Any]) -> str:
    from paceline.advise.text import next_command

    return next_command(advice.choice, str(options["script"]), _args(options))
