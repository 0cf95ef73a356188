"""Does mixed precision cost accuracy? Fashion-MNIST, four workers, paired seeds.

Trains the CNN of ``scripts/fashion.py`` in each precision from the same seeds (real processes, three
to seven minutes) and prints the mean difference to fp32 with its standard error, in points.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

from rich.console import Console
from rich.table import Table

from paceline.runs import read_run

SCRIPT = Path(__file__).parent / "scripts" / "fashion.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precisions", default="fp32,bf16,fp16", help="the first is the baseline")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--strategy", default="sync")
    parser.add_argument("--out", type=Path, default=Path("runs/accuracy.json"))
    args = parser.parse_args()

    console = Console()
    words = args.precisions.split(",")
    points: dict[str, list[float]] = {word: [] for word in words}
    for seed in range(args.seeds):
        for word in words:
            points[word].append(100 * trained(args, word, seed))
        said = ", ".join(f"{word} {own[-1]:.2f}" for word, own in points.items())
        console.print(f"seed {seed}: {said}", style="dim", highlight=False)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(points, indent=1))
    console.print(table(points, words[0]))


def trained(args: argparse.Namespace, precision: str, seed: int) -> float:
    """The test accuracy (0 to 1) after the last epoch of one run."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        command = [
            sys.executable, "-m", "paceline.cli", "run", "--quiet", "-n", str(args.workers),
            "--strategy", args.strategy, "--accumulate", str(args.accumulate),
            "--seed", str(seed), "--out", str(out), str(SCRIPT), "--precision", precision,
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        return [one.value for one in read_run(out).metrics if one.name == "accuracy"][-1]


def table(points: dict[str, list[float]], baseline: str) -> Table:
    """Mean accuracy of each precision, and the paired difference to the baseline."""
    shown = Table(title="test accuracy, per cent", title_justify="left")
    for name in ("precision", "mean", f"minus {baseline}", "standard error", "each seed"):
        shown.add_column(name, justify="left" if name == "precision" else "right")
    for word, own in points.items():
        apart = [one - other for one, other in zip(own, points[baseline], strict=True)]
        error = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else float("nan")
        each = " ".join(f"{one:+.2f}" for one in apart)
        shown.add_row(word, f"{mean(own):.2f}", f"{mean(apart):+.2f}", f"{error:.2f}", each)
    return shown


if __name__ == "__main__":
    main()
