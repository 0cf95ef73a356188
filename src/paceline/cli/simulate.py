"""``paceline simulate``: what each strategy would make of a cluster, before anybody rents one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paceline.simulate.scenes import Scene
    from paceline.simulate.table import Result
    from paceline.simulate.windows import Windows
    from paceline.strategies import Strategy

EPILOG = """
\b
Examples:
  paceline simulate --workers 128 --step 1.0 --late 2x3.0
  paceline simulate cluster.toml --strategies sync,ssp:3,async --timeline 12 --html lanes.html
  paceline simulate --workers 8,16,32,64 --step 0.1 --jitter 0.2 --html sweep.html
  paceline simulate --from runs/20260101-120000-train --strategies sync,backup:1,ssp:3,async
  paceline simulate cluster.toml --strategies sync,local:8,diloco:50    (a slow network)

\b
Compressed gradients are lines of the file's [network], for nobody knows the model here:
  push_bytes = 2e6    gathered = true    coding_s = 0.07    (docs/compression.md)

\b
Exit codes:
  0    the table (or JSON) is on stdout
  2    a value on the command line or in the file is wrong
  130  Ctrl-C; what was simulated is printed
"""


@click.command(context_settings={"max_content_width": 100}, epilog=EPILOG)
@click.argument("cluster", required=False, type=Path, metavar="[CLUSTER.TOML]")
@click.option("--from", "source", type=Path, metavar="RUN", help="Step times that RUN recorded.")
@click.option("--workers", metavar="N,N,...", help="How many; several numbers are a sweep.")
@click.option("--step", "step_s", type=click.FloatRange(0, min_open=True), help="Seconds.")
@click.option("--jitter", type=click.FloatRange(0), help="Share of a step, exponential.")
@click.option("--late", metavar="2x3.0", help="So many workers are late by so many seconds.")
@click.option("--pattern", metavar="WORD", help="Who is late: same, every:50, random. [all three]")
@click.option("--hiccups", metavar="0.05x3", help="With this chance a step takes so much longer.")
@click.option("--shards", metavar="N,N,...", help="Of the server; several numbers are a sweep.")
@click.option(
    "--group-size", type=click.IntRange(1), help="Workers of a group, for hybrid:... [of a node]"
)
@click.option("--strategies", default="sync,backup:1,ssp:3,async", show_default=True)
@click.option(
    "--steps",
    type=click.IntRange(2),
    default=1000,
    show_default=True,
    help="Windows of each worker.",
)
@click.option("--accumulate", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--timeline", type=click.IntRange(1), help="Show the first steps as lanes.")
@click.option("--compress", hidden=True)
@click.option("--html", type=Path, metavar="FILE", help="Write table, lanes and curves as a page.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
def command(timeline: int | None, html: Path | None, as_json: bool, **options: Any) -> None:
    """Simulate a cluster under several strategies: time, utilisation, waiting, version lag.

    The cluster comes from a file, from a recorded run, or from the options. Every decision is made by
    the policy that also decides real runs; nothing is started, and torch is not needed.
    """
    from paceline.errors import bad_value
    from paceline.simulate.remarks import remarks
    from paceline.simulate.table import as_json as figures_as_json
    from paceline.simulate.table import render

    if html is not None and (html.is_dir() or not html.resolve().parent.is_dir()):
        raise bad_value("html", str(html), "a file in a directory that exists")
    done, interrupted = _simulated(options)
    results = [result for result, _ in done]
    if not results:
        raise SystemExit(130)
    show = figures_as_json if as_json else render
    click.echo(show(results, remarks(results)))
    if timeline and not as_json:
        click.echo(_as_lanes(done, timeline))
    if html:
        _write_page(html, done, timeline or 12)
        click.echo(f"page: {html}", err=as_json)
    raise SystemExit(130 if interrupted else 0)


def _simulated(options: dict[str, Any]) -> tuple[list[tuple[Result, Windows]], bool]:
    from paceline.simulate.predict import check_pairing, predict
    from paceline.simulate.table import Result

    strategies = _strategies(options)
    scenes = _scenes(options)
    done: list[tuple[Result, Windows]] = []
    for scene in scenes:
        for strategy in strategies:
            check_pairing(strategy, scene.workers, scene.scenario.group_size)
    try:
        for scene in scenes:
            for strategy in strategies:
                _tell(f"{len(done) + 1} of {len(scenes) * len(strategies)}: {strategy}")
                prediction, windows = predict(strategy, scene.scenario)
                done.append((Result(scene=scene, prediction=prediction), windows))
    except KeyboardInterrupt:
        return done, True
    finally:
        _tell("")
    return done, False


def _strategies(options: dict[str, Any]) -> list[Strategy]:
    from paceline.errors import UsageError, bad_value
    from paceline.strategies import parse_strategy

    words = options["strategies"].split(",")
    if options["compress"] is not None or "compress" in options["strategies"]:
        raise UsageError(
            "A simulation knows no model to compress: say in the cluster file's [network] what a gradient "
            "has in bytes then (push_bytes), whether all ranks gather it (gathered = true: topk, int8, "
            "sign), and what coding takes (coding_s). docs/compression.md has an example."
        )
    if "=" in options["strategies"]:
        raise bad_value(
            "strategies", options["strategies"], "words with commas between, as in sync,ssp:3,local:8",
            "--accumulate and --group-size are options of their own; nothing else changes the time.",
        )  # fmt: skip
    return [parse_strategy(word) for word in words]


def _tell(text: str) -> None:
    """One line of progress, where somebody may be watching."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}", nl=False, err=True)


def _scenes(options: dict[str, Any]) -> list[Scene]:
    from paceline.errors import UsageError
    from paceline.simulate.cluster import ClusterModel
    from paceline.simulate.left_out import left_out
    from paceline.simulate.scenes import scenes_of

    own = ("step_s", "jitter", "late", "hiccups")
    given = [name.removesuffix("_s") for name in own if options[name] is not None]
    cluster, source = options["cluster"], options["source"]
    _check_commas(cluster, options["workers"])
    if (cluster or source) and given:
        raise UsageError(
            f"--{given[0]} and a {'file' if cluster else 'recorded run'} cannot work together: the "
            "times come from one of them. Leave one of them out."
        )
    if cluster and source:
        raise UsageError("A cluster file and --from cannot work together. Give one of them.")
    if source:
        return _recorded(options)
    workers = _numbers("workers", options["workers"])
    if options["pattern"] and not cluster and not options["late"]:
        raise UsageError("--pattern says who is late: give --late too, as in --late 2x3.0.")
    model = ClusterModel.load(cluster) if cluster else _described(options, workers)
    if cluster and workers and (absent := left_out(model, max(workers), str(cluster))):
        click.echo(f"paceline: {absent}", err=True)
    return list(
        scenes_of(
            model, steps=options["steps"], accumulate=options["accumulate"], workers=workers,
            shards=_numbers("shards", options["shards"]), pattern=options["pattern"] or "",
            group_size=options["group_size"],
        )
    )  # fmt: skip


def _check_commas(cluster: Path | None, workers: str | None) -> None:
    """``--workers 16 64``: the 64 looks like a file."""
    from paceline.errors import UsageError

    if cluster is not None and cluster.name.isdigit() and not cluster.exists():
        raise UsageError(
            f"{cluster}: there is no such cluster file. Numbers of a sweep have commas between and no "
            f"spaces, as in --workers {workers or 'N'},{cluster}."
        )


def _described(options: dict[str, Any], workers: list[int]) -> Any:
    from paceline.errors import UsageError
    from paceline.simulate.scenes import Wish, model_of

    if not workers or options["step_s"] is None:
        raise UsageError(
            "What cluster? Give a cluster.toml, --from RUN, or at least --workers and --step "
            "(seconds), as in 'paceline simulate --workers 128 --step 1.0 --late 2x3.0'."
        )
    return model_of(
        Wish(
            workers=workers, step_s=options["step_s"], jitter=options["jitter"] or 0.0,
            late=options["late"] or "", pattern=options["pattern"] or "",
            hiccups=options["hiccups"] or "", seed=options["seed"],
        )
    )  # fmt: skip


def _recorded(options: dict[str, Any]) -> list[Scene]:
    from paceline.errors import UsageError
    from paceline.runs import read_run
    from paceline.simulate.predict import Scenario
    from paceline.simulate.recorded import recorded_times
    from paceline.simulate.recorded_ways import about_encoding, recorded_ways
    from paceline.simulate.scenes import Scene, check_size

    for name in ("shards", "pattern"):
        if options[name] is not None:
            raise UsageError(f"--{name} and --from cannot work together: a run has no such thing.")
    run = read_run(options["source"])
    absent = _absent(run.absent_ranks, run.setup.world_size)
    for remark in (run.missing, absent, about_encoding(run)):
        if remark:
            click.echo(f"paceline: {remark}", err=True)
    if run.summary.get("request", {}).get("replay"):
        original = run.summary["request"]["replay"]
        raise UsageError(
            f"{options['source']} is a replay: whoever came first was made to wait for the recorded "
            f"order, so its times are not the cluster's. Give the run itself: --from {original}."
        )
    times = recorded_times(run, seed=options["seed"])
    steps, accumulate = options["steps"], options["accumulate"]
    scenes = []
    for size in _numbers("workers", options["workers"]) or [times.count]:
        check_size(size, steps, accumulate)
        cluster = times.of(size)
        scenario = Scenario(
            cluster=cluster,
            steps=steps,
            accumulate=accumulate,
            network=recorded_ways(run, cluster),
            group_size=options["group_size"],
        )
        scenes.append(Scene(scenario=scenario))
    return scenes


def _absent(ranks: Sequence[int], world_size: int) -> str:
    if not ranks:
        return ""
    names = ", ".join(map(str, ranks))
    return (
        f"the traces of {len(ranks)} of {world_size} workers are missing (rank {names}; each host keeps its "
        "own), and without --workers only the others are simulated. Copy all rank-*.jsonl into one directory."
    )


def _numbers(name: str, text: str | None) -> list[int]:
    from paceline.errors import bad_value

    if text is None:
        return []
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) >= 1 for part in parts):
        raise bad_value(name, text, "whole numbers >= 1 with commas between, as in 8,16,32")
    return list(dict.fromkeys(int(part) for part in parts))


def _as_lanes(done: list[tuple[Result, Windows]], steps: int) -> str:
    from paceline.simulate.lanes import MAX_LANES, end_of_steps, lanes
    from paceline.simulate.table import label_of

    results = [result for result, _ in done]
    until_s = max(end_of_steps(windows, steps) for _, windows in done)
    parts = []
    for result, windows in done:
        more = f" (the first {MAX_LANES} workers)" if windows.workers > MAX_LANES else ""
        parts.append(f"\n{label_of(result, results)}{more}, 0 to {until_s:.3g} s")
        parts += [f"{rank:3d} {lane}" for rank, lane in enumerate(lanes(windows, until_s=until_s))]
    return "\n".join([*parts, "\n█▓ computing, window by window   ░ in vain (dropped)   · waiting"])


def _write_page(path: Path, done: list[tuple[Result, Windows]], steps: int) -> None:
    from paceline.report.simulation import render_simulation

    results = [result for result, _ in done]
    words = ", ".join(dict.fromkeys(one.prediction.strategy for one in results))
    shown = done if len(done) <= 12 else []
    page = render_simulation(f"paceline simulate: {words}", results, shown, steps=steps)
    path.write_text(page, encoding="utf-8")
