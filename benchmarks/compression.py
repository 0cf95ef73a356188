"""What compression does to accuracy: ``make bench-compression``, a CNN on Fashion-MNIST, four workers.

Trains cell by cell (a compression and a seed) in virtual time, the most important first, until all are
done or the time is up; what is stored already is not trained again. Every compression is compared with
uncompressed training of the same seeds, and the bytes are those that were sent.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from paceline.runs import read_run

HERE = Path(__file__).parent
SCRIPT = HERE / "scripts" / "fashion.py"
CLUSTER = "[workers]\ncount = 4\nstep_s = 0.01\n"
DENSE = "none"
WORDS = (
    DENSE, "topk:0.01", "powersgd:4", "topk:0.01,feedback=off", "topk:0.01,warmup=0",
    "topk:0.01,warmup=0,feedback=off", "sign", "int8", "randomk:0.01",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="begin no cell later")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=20_000, help="of an epoch")
    parser.add_argument("--only", help="compressions, divided by blanks")
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--store", type=Path, default=HERE / "results" / "compression.jsonl")
    args = parser.parse_args()
    words = tuple(args.only.split()) if args.only else WORDS
    wanted = [(word, seed) for seed in range(args.seeds) for word in words]
    try:
        if not args.table:
            work(args, wanted)
    except KeyboardInterrupt:
        print("stopped; what was finished is stored", file=sys.stderr)
    Console(width=100).print(table(list(stored(args)), words))
    return 0


def work(args: argparse.Namespace, wanted: list[tuple[str, int]]) -> None:
    """Train what is missing until the time is up."""
    until_s = time.monotonic() + 60 * args.minutes
    done = {(one["compress"], one["seed"]) for one in stored(args)}
    for word, seed in wanted:
        if (word, seed) in done:
            continue
        if time.monotonic() > until_s:
            return
        cell = {"compress": word, "seed": seed, "epochs": args.epochs, "samples": args.samples}
        print(f"{word}, seed {seed} ...", file=sys.stderr)
        line = {**cell, **trained(cell)}
        with args.store.open("a") as file:
            file.write(json.dumps(line) + "\n")


def trained(cell: dict[str, Any]) -> dict[str, float]:
    """Test accuracy in per cent, and the bytes that a worker sent."""
    with tempfile.TemporaryDirectory() as name:
        cluster, out = Path(name) / "cluster.toml", Path(name) / "run"
        cluster.write_text(CLUSTER)
        command = [sys.executable, "-m", "paceline.cli", "run", "--virtual", str(cluster)]
        command += ["--strategy", "sync:server", "--seed", str(cell["seed"]), "--quiet"]
        if cell["compress"] != DENSE:
            command += ["--compress", cell["compress"]]
        command += ["--out", str(out), str(SCRIPT)]
        command += ["--epochs", str(cell["epochs"]), "--samples", str(cell["samples"])]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        run = read_run(out)
        steps = run.ranks[0].steps
        return {
            "accuracy": round(100 * run.metrics[-1].value, 3),
            "sent_bytes": sum(step.sent_bytes for step in steps) / len(steps),
            "last_bytes": steps[-1].sent_bytes,
        }


def stored(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What was trained so far of this size."""
    lines = args.store.read_text().splitlines() if args.store.exists() else []
    for line in map(json.loads, lines):
        if (line["epochs"], line["samples"]) == (args.epochs, args.samples):
            yield line


def table(lines: list[dict[str, Any]], words: tuple[str, ...]) -> Table:
    """A row for each compression, over the seeds that it shares with uncompressed training."""
    dense = {one["seed"]: one for one in lines if one["compress"] == DENSE}
    shown = Table(box=box.SIMPLE_HEAD)
    for name in ("compress", "seeds", "accuracy, %", "against none", "bytes a push", "of none"):
        shown.add_column(name, justify="left" if name == "compress" else "right")
    for word in words:
        mine = [one for one in lines if one["compress"] == word and one["seed"] in dense]
        if mine:
            shown.add_row(word, *_figures(mine, [dense[one["seed"]] for one in mine]))
    return shown


def _figures(mine: list[dict[str, Any]], dense: list[dict[str, Any]]) -> list[str]:
    differences = [a["accuracy"] - b["accuracy"] for a, b in zip(mine, dense, strict=True)]
    error = ""
    if len(mine) > 1:
        error = f" ± {statistics.stdev(differences) / len(mine) ** 0.5:.2f}"
    return [
        str(len(mine)),
        f"{statistics.mean(one['accuracy'] for one in mine):.2f}",
        f"{statistics.mean(differences):+.2f}{error}",
        f"{mine[0]['last_bytes']:,}",
        f"{sum(o['sent_bytes'] for o in mine) / sum(o['sent_bytes'] for o in dense):.1%}",
    ]


if __name__ == "__main__":
    sys.exit(main())
