"""What do ssp and async lose under recipe='stable', and what do they save? `make bench-accuracy`.

Trains cell by cell, the most important first, in virtual time (and a few on real processes), until
all are done or the time is up; what is stored already is not trained again. Then prints the tables.
A cell of the CNN takes two to five minutes of one core, one of the attention model half a minute.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recipes.cells import Cell, compared, plan
from recipes.picture import draw
from recipes.store import Point, Store
from recipes.table import tables
from rich.console import Console

from paceline.errors import UsageError
from paceline.runs import read_run

HERE = Path(__file__).parent
SCRIPT = HERE / "scripts" / "recipes.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--minutes", type=float, default=60, help="begin no cell later (default 60)"
    )
    parser.add_argument("--seeds", type=int, default=10, help="pairs (default 10)")
    parser.add_argument("--only", default="", help="cells whose description holds this")
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--picture", type=Path, help="draw the curves into this file (SVG)")
    parser.add_argument("--store", type=Path, default=HERE / "results" / "recipes.jsonl")
    args = parser.parse_args()

    console, store = Console(), Store(args.store)
    if not args.table:
        try:
            work(store, args, console)
        except KeyboardInterrupt:
            console.print("stopped; what was finished is stored", style="dim")
    for table in tables(store, compared(args.seeds), args.seeds):
        console.print(table)
    if args.picture is not None:
        draw(store, compared(args.seeds), args.picture)
    missing = [c for c in dict.fromkeys(plan(store.picked, args.seeds)) if c not in store]
    if missing:
        console.print(f"{len(missing)} cells are missing, first: {said(missing[0])}", style="dim")


def work(store: Store, args: argparse.Namespace, console: Console) -> None:
    """Train what is missing until the time is up."""
    until_s = time.monotonic() + 60 * args.minutes
    while time.monotonic() < until_s:
        cells = plan(store.picked, args.seeds)
        cell = next((c for c in cells if c not in store and args.only in said(c)), None)
        if cell is None:
            return
        began_s = time.monotonic()
        curve = trained(cell)
        store.add(cell, curve, wall_s=time.monotonic() - began_s)
        ended = f"{curve[-1].score:.3f} after {curve[-1].time_s:.0f} s" if curve else "broke off"
        console.print(f"{said(cell)}: {ended}", style="dim", highlight=False)


def trained(cell: Cell) -> list[Point]:
    """The run's scores, epoch by epoch; none if it failed (a loss that diverges ends a run)."""
    setting = cell.setting
    with tempfile.TemporaryDirectory() as directory:
        cluster, out = Path(directory) / "cluster.toml", Path(directory) / "run"
        cluster.write_text(cell.cluster_toml)
        command = [
            sys.executable, "-m", "paceline.cli", "run", "--quiet", "--out", str(out),
            "--emulate" if cell.real else "--virtual", str(cluster), "-n", str(setting.workers),
            "--strategy", setting.strategy if setting.strategy != "sync" else "sync:server",
            "--recipe", setting.recipe_word, "--seed", str(cell.seed), "--threads", "1",
            str(SCRIPT), setting.task, "--lr", str(cell.lr), "--epochs", str(setting.passes),
            *(["--held-out"] if cell.held_out else []),
            *(["--optimizer", setting.optimizer] if setting.optimizer else []),
        ]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode == 130:
            raise KeyboardInterrupt
        try:
            run = read_run(out)
        except UsageError:
            raise SystemExit(f"{said(cell)} failed:\n{ended.stderr[-3000:]}") from None
    if ended.returncode:
        return []
    began_s = min(rank.steps[0].time_s for rank in run.ranks)
    return [
        Point(time_s=one.time_s - began_s, samples=one.samples, score=one.value)
        for one in run.metrics
    ]


def said(cell: Cell) -> str:
    """The cell in words, for people and for --only."""
    setting = cell.setting
    how = "real" if cell.real else "virtual"
    data = "held-out" if cell.held_out else "test"
    words = (setting.task, setting.cluster, setting.recipe, setting.name)
    return f"{' '.join(words)} lr {cell.lr:g} seed {cell.seed} {data} {how}"


if __name__ == "__main__":
    main()
