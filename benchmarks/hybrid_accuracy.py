"""Does hybrid train as well as sync over all workers, and how much faster, where one host has hiccups?

Two hosts of two workers at 1 Gb/s train the Fashion-MNIST CNN (batch 32 a worker, momentum 0.9, cosine, 10
epochs); one worker of host 1 takes ten steps longer for every fifth of its windows. Cell by cell, in pairs
of equal seeds; what is stored already is not trained again. In virtual time (five minutes of one core a
cell), or --real: processes in network namespaces, which needs root, ip and tc.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from prediction.launched import Job, launched
from prediction.namespaces import hosts, missing
from recipes.figures import standard_error
from rich import box
from rich.console import Console
from rich.table import Table

from paceline.runs import read_run

HERE = Path(__file__).parent
SCRIPT = HERE / "scripts" / "hybrid_cnn.py"
RATE_BITS_PER_S, LOCAL_BYTES_PER_S = 1e9, 1e12
"""Between the hosts; and to the server on one's own, where nothing crosses anything."""
EVERY, HICCUP_S, REAL_HICCUP_S = 5, 0.05, 0.25
"""Each fifth window of rank 2 takes so much longer: ten steps, about, of an idle core and of a busy one."""
STEP_S, BATCHES = 0.005, 1875
"""Of a micro-batch, on an idle core; and of an epoch."""
SYNC, HYBRID = STRATEGIES = ("sync", "hybrid:async")
MARGIN, FASTER = 0.3, 1.5


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training. ``real``: on processes in network namespaces, else in virtual time."""

    strategy: str
    recipe: str
    lr: float
    seed: int
    epochs: int
    real: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """``score``: test accuracy in per cent; ``batches_per_s``: of all workers while they trained, by the
    slowest one's clock; ``share``: of the batches, which the host with hiccups computed."""

    score: float
    batches_per_s: float
    share: float
    wall_s: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit status: 0; 1 if a goal is missed; 3 where there can be no namespaces.",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=45, help="begin no cell later [45]")
    parser.add_argument("--seeds", type=int, default=3, help="pairs [3]")
    parser.add_argument("--epochs", type=int, default=10, help="of each run [10]")
    parser.add_argument("--recipe", default="plain", help="of both strategies [plain]")
    parser.add_argument("--lr", type=float, default=0.08, help="of both strategies [0.08]")
    parser.add_argument("--real", action="store_true", help="on processes, in network namespaces")
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--store", type=Path, default=HERE / "results" / "hybrid.jsonl")
    args = parser.parse_args()
    if args.real and not args.table and (reason := missing()):
        print(f"left out: {reason}")
        return 3
    wanted = [
        Cell(
            strategy=one,
            recipe=args.recipe,
            lr=args.lr,
            seed=seed,
            epochs=args.epochs,
            real=args.real,
        )
        for seed in range(args.seeds)
        for one in STRATEGIES
    ]
    try:
        if not args.table:
            work(args.store, wanted, time.monotonic() + 60 * args.minutes)
    except KeyboardInterrupt:
        print("stopped; what was finished is stored", file=sys.stderr)
    known = stored(args.store)
    settings = {(cell.recipe, cell.lr, cell.epochs, cell.real): None for cell in known}
    return max([summary(known, *one) for one in settings], default=1)


def work(store: Path, wanted: list[Cell], until_s: float) -> None:
    """Train what is missing until the time is up."""
    for cell in wanted:
        if cell in stored(store):
            continue
        if time.monotonic() > until_s:
            return
        result = trained(cell)
        with store.open("a") as file:
            file.write(json.dumps({"cell": asdict(cell), "result": asdict(result)}) + "\n")
        print(f"{cell.strategy}, seed {cell.seed}: {result}", file=sys.stderr)


def trained(cell: Cell) -> Result:
    """What the cell's run came to."""
    began_s = time.monotonic()
    score, batches_per_s, share = on_hosts(cell) if cell.real else in_virtual_time(cell)
    return Result(
        score=score, batches_per_s=batches_per_s, share=share,
        wall_s=round(time.monotonic() - began_s, 1),
    )  # fmt: skip


def words_of(cell: Cell) -> list[str]:
    """What `paceline run` is told."""
    return ["--strategy", cell.strategy, "--recipe", cell.recipe, "--seed", str(cell.seed)]


def on_hosts(cell: Cell) -> tuple[float, float, float]:
    """Score, batches a second and host 1's share of a run in network namespaces."""
    args = [
        "--lr", str(cell.lr), "--epochs", str(cell.epochs),
        "--every", str(EVERY), "--hiccup-s", str(REAL_HICCUP_S),
    ]  # fmt: skip
    with hosts((RATE_BITS_PER_S,) * 2) as places:
        job = Job(script=SCRIPT, workers=2, args=args, words=words_of(cell))
        said = launched(places, job, timeout_s=3600)
    rows = [[(int(n), float(s)) for n, s in re.findall(r"took (\d+) (\S+)", one)] for one in said]
    done = [sum(number for number, _ in own) for own in rows]
    time_s = max(took_s for own in rows for _, took_s in own)
    return float(re.findall(r"score (\S+)", said[0])[-1]), sum(done) / time_s, done[1] / sum(done)


def in_virtual_time(cell: Cell) -> tuple[float, float, float]:
    """The same of a run in virtual time, in which evaluation takes none."""
    with tempfile.TemporaryDirectory() as name:
        cluster, out = Path(name) / "cluster.toml", Path(name) / "run"
        cluster.write_text(cluster_toml(cell))
        command = [
            sys.executable, "-m", "paceline.cli", "run", "--quiet", "--out", str(out), "-n", "4",
            "--virtual", str(cluster), "--threads", "1", *words_of(cell),
            str(HERE / "scripts" / "recipes.py"), "fashion", "--lr", str(cell.lr),
            "--epochs", str(cell.epochs),
        ]  # fmt: skip
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        run = read_run(out)
    done = [sum(step.batches for step in rank.steps) for rank in run.ranks]
    time_s = run.metrics[-1].time_s - min(rank.steps[0].time_s for rank in run.ranks)
    return run.metrics[-1].value, sum(done) / time_s, sum(done[2:]) / sum(done)


def cluster_toml(cell: Cell) -> str:
    """Two nodes of two workers, the second of which falters."""
    hiccups = "".join(
        f"[[bursts]]\nrank = 2\nstart = {step}\nlength = 1\nfactor = {1 + HICCUP_S / STEP_S}\n"
        for step in range(EVERY - 1, BATCHES * cell.epochs // 2, EVERY)
    )
    return (
        f"[workers]\ncount = 4\nstep_s = {STEP_S}\njitter = 0.1\nseed = {cell.seed}\n"
        f"[network]\nsize_bytes = 425e3\nbytes_per_s = {RATE_BITS_PER_S / 8}\nper_node = 2\n"
        f"[[links]]\nnode = 0\nbytes_per_s = {LOCAL_BYTES_PER_S}\n{hiccups}"
    )


def stored(store: Path) -> dict[Cell, Result]:
    """What was trained so far."""
    lines = store.read_text().splitlines() if store.exists() else []
    return {Cell(**one["cell"]): Result(**one["result"]) for one in map(json.loads, lines)}


def pairs(
    known: dict[Cell, Result], recipe: str, lr: float, epochs: int, real: bool
) -> Iterator[tuple[Result, Result]]:
    """(sync, hybrid) of each seed that has both."""
    for cell, result in known.items():
        own = (cell.strategy, cell.recipe, cell.lr, cell.epochs, cell.real)
        if own == (SYNC, recipe, lr, epochs, real):
            other = Cell(**{**asdict(cell), "strategy": HYBRID})
            if other in known:
                yield result, known[other]


def summary(known: dict[Cell, Result], recipe: str, lr: float, epochs: int, real: bool) -> int:
    """Print the table of one setting; 1 if a goal is missed or nothing is known."""
    both = list(pairs(known, recipe, lr, epochs, real))
    if not both:
        return 1
    lost = [of_sync.score - own.score for of_sync, own in both]
    faster = [own.batches_per_s / of_sync.batches_per_s for of_sync, own in both]
    shown = Table(
        title=f"recipe {recipe}, lr {lr:g}, {epochs} epochs, {len(both)} seeds, "
        + ("processes on two hosts" if real else "virtual time"),
        title_justify="left", box=box.SIMPLE_HEAD,
    )  # fmt: skip
    for name in ("strategy", "accuracy, %", "batches/s", "computed on host 1"):
        shown.add_column(name, justify="left" if name == "strategy" else "right")
    for strategy, results in zip(STRATEGIES, zip(*both, strict=True), strict=True):
        shown.add_row(
            strategy, f"{mean(one.score for one in results):.2f}",
            f"{mean(one.batches_per_s for one in results):.1f}",
            f"{mean(one.share for one in results):.0%}",
        )  # fmt: skip
    Console(width=100).print(shown)
    print(
        f"lost to sync: {mean(lost):+.2f} +- {standard_error(lost):.2f} points (goal <= {MARGIN:g}); "
        f"throughput {mean(faster):.2f} x sync's (goal >= {FASTER:g})"
    )
    return int(mean(lost) > MARGIN or mean(faster) < FASTER)


if __name__ == "__main__":
    sys.exit(main())
