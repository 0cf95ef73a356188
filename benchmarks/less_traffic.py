"""Does a run that sends less train as well as sync? ``make bench-traffic``.

Four workers train the Fashion-MNIST CNN (momentum 0.9, batch 32, cosine, 10 epochs) under sync, with
compressed gradients, and under strategies that meet less often, all at the learning rate that was best
for sync on images kept back (diloco at its own). What is stored already is not trained again. In virtual
time (true gradients, four workers in one process: one to five minutes of one core a cell), then a few on
real processes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from traffic.cells import DENSE, EPOCHS, Cell, Result, plan
from traffic.store import Store
from traffic.table import table

from paceline.errors import UsageError
from paceline.runs import Run, read_run

HERE = Path(__file__).parent
SCRIPT = HERE / "scripts" / "recipes.py"
CLUSTER = "[workers]\ncount = {workers}\nstep_s = 1.0\njitter = 0.1\nseed = {seed}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="begin no cell later (60)")
    parser.add_argument("--seeds", type=int, default=10, help="pairs of what is judged (10)")
    parser.add_argument("--real", type=int, default=3, help="seeds on real processes (3)")
    parser.add_argument("--only", default="", help="cells whose description holds this")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"of each run ({EPOCHS})")
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--store", type=Path, default=HERE / "results" / "less_traffic.jsonl")
    args = parser.parse_args()

    console, store = Console(width=140), Store(args.store)
    if not args.table:
        try:
            work(store, args, console)
        except KeyboardInterrupt:
            console.print("stopped; what was finished is stored", style="dim")
    for real in (False, True):
        if shown := table(store, epochs=args.epochs, real=real):
            console.print(shown)
    if missing := [cell for cell in wanted(store, args) if cell not in store]:
        console.print(f"{len(missing)} cells are missing, first: {missing[0]}", style="dim")


def work(store: Store, args: argparse.Namespace, console: Console) -> None:
    """Train what is missing until the time is up."""
    until_s = time.monotonic() + 60 * args.minutes
    while time.monotonic() < until_s:
        cell = next((one for one in wanted(store, args) if one not in store), None)
        if cell is None:
            return
        result = trained(cell)
        store.add(cell, result)
        console.print(f"{cell}: {result.score:.2f} %", style="dim", highlight=False)


def wanted(store: Store, args: argparse.Namespace) -> list[Cell]:
    """What was asked for, stored or not, the most important first."""
    cells = plan(store.picked, epochs=args.epochs, seeds=args.seeds, real=args.real)
    return [cell for cell in cells if args.only in str(cell)]


def trained(cell: Cell) -> Result:
    """What the cell's run came to."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        cluster, out = Path(directory) / "cluster.toml", Path(directory) / "run"
        cluster.write_text(CLUSTER.format(workers=cell.workers, seed=cell.seed))
        command = [
            sys.executable, "-m", "paceline.cli", "run", "--quiet", "--out", str(out),
            *([] if cell.real else ["--virtual", str(cluster)]), "-n", str(cell.workers),
            "--strategy", cell.strategy, *(["--compress", cell.compress] if cell.compress != DENSE else []),
            "--seed", str(cell.seed), "--threads", "1",
            str(SCRIPT), "fashion", "--lr", str(cell.lr), "--epochs", str(cell.epochs),
            *(["--held-out"] if cell.held_out else []),
        ]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode == 130:
            raise KeyboardInterrupt
        try:
            run = read_run(out)
        except UsageError:
            raise SystemExit(f"{cell} failed:\n{ended.stderr[-3000:]}") from None
    score = run.metrics[-1].value if run.metrics and not ended.returncode else float("-inf")
    return _result(run, score, time.monotonic() - began_s)


def _result(run: Run, score: float, wall_s: float) -> Result:
    """Counted in the trace of rank 0, which has as many windows as any."""
    steps, drifts = run.ranks[0].steps, run.ranks[0].drifts
    far = [one.distance / one.size for one in drifts if one.distance is not None]
    return Result(
        score=score,
        windows=len(steps),
        exchanges=sum(step.sent_bytes > 0 for step in steps),
        sent_bytes=sum(step.sent_bytes for step in steps),
        drift=far[-1] if far else 0.0,
        wall_s=round(wall_s, 1),
        received_bytes=sum(step.received_bytes for step in steps),
    )


if __name__ == "__main__":
    main()
