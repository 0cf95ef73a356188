"""Does local SGD train as well as sync with a fraction of the exchanges? `make bench-local`.

Four workers train the Fashion-MNIST CNN (momentum 0.9, batch 32, cosine, 10 epochs) under sync and under
each strategy that meets less often, all at the learning rate that was better for sync on images kept back.
What is stored already is not trained again. In virtual time (true
gradients, four workers in one process: five minutes of one core a cell of 10 epochs), or --real.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from replicas.cells import EPOCHS, Cell, Result, plan, said
from replicas.store import Store
from replicas.table import table
from rich.console import Console

from paceline.errors import UsageError
from paceline.runs import Run, read_run

HERE = Path(__file__).parent
SCRIPT = HERE / "scripts" / "recipes.py"
CLUSTER = "[workers]\ncount = {workers}\nstep_s = 1.0\njitter = 0.1\nseed = {seed}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="begin no cell later (60)")
    parser.add_argument("--seeds", type=int, default=3, help="of each strategy (3)")
    parser.add_argument("--real", type=int, default=0, help="seeds on real processes, last (0)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"of each run ({EPOCHS})")
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--store", type=Path, default=HERE / "results" / "local.jsonl")
    args = parser.parse_args()

    console, store = Console(), Store(args.store)
    if not args.table:
        try:
            work(store, args, console)
        except KeyboardInterrupt:
            console.print("stopped; what was finished is stored", style="dim")
    for real in (False, True):
        if shown := table(store, epochs=args.epochs, real=real):
            console.print(shown)
    missing = [
        cell
        for cell in plan(store.picked(), args.epochs, args.seeds, args.real)
        if cell not in store
    ]
    if missing:
        console.print(f"{len(missing)} cells are missing, first: {said(missing[0])}", style="dim")


def work(store: Store, args: argparse.Namespace, console: Console) -> None:
    """Train what is missing until the time is up."""
    until_s = time.monotonic() + 60 * args.minutes
    while time.monotonic() < until_s:
        cells = plan(store.picked(), args.epochs, args.seeds, args.real)
        cell = next((one for one in cells if one not in store), None)
        if cell is None:
            return
        result = trained(cell)
        store.add(cell, result)
        console.print(f"{said(cell)}: {result.score:.2f} %", style="dim", highlight=False)


def trained(cell: Cell) -> Result:
    """What the cell's run came to."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        cluster, out = Path(directory) / "cluster.toml", Path(directory) / "run"
        cluster.write_text(CLUSTER.format(workers=cell.workers, seed=cell.seed))
        command = [
            sys.executable, "-m", "paceline.cli", "run", "--quiet", "--out", str(out),
            *([] if cell.real else ["--virtual", str(cluster)]), "-n", str(cell.workers),
            "--strategy", cell.strategy, "--seed", str(cell.seed), "--threads", "1",
            str(SCRIPT), "fashion", "--lr", str(cell.lr), "--epochs", str(cell.epochs),
            *(["--held-out"] if cell.held_out else []),
        ]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode == 130:
            raise KeyboardInterrupt
        try:
            run = read_run(out)
        except UsageError:
            raise SystemExit(f"{said(cell)} failed:\n{ended.stderr[-3000:]}") from None
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
    )


if __name__ == "__main__":
    main()
