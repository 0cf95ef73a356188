"""Two hosts of two workers at 1 Gb/s, hiccups on the second: hybrid against sync and flat async.

Network namespaces joined by a bridge (token-bucket filters), all strategies one after another, several
rounds. Throughput is loader batches of all workers a second of the slowest rank's pass; bytes are those
that host 1's port moved for each batch computed there, as its interface counts them. Needs root, ip, tc.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from prediction.launched import Job, launched
from prediction.namespaces import Host, hosts, missing
from scripts.hybrid import EVERY, HICCUP_S, SIZE_BYTES

from paceline.report.svg import LINE_COLOURS

RATE_BITS_PER_S = 1e9
SCRIPT = Path(__file__).parent / "scripts" / "hybrid.py"
STRATEGIES = ("sync", "async", "hybrid:async")
FASTER = 1.5


@dataclass(frozen=True, kw_only=True)
class Seen:
    """``batches_per_s``: of all workers; ``bytes_per_batch``: over host 1's port."""

    batches_per_s: float
    bytes_per_batch: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit status: 0; 1 if a goal is missed; 3 where there can be no namespaces.",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=2, help="of all strategies [default: 2]")
    parser.add_argument("--steps", type=int, default=24, help="windows a worker, on average")
    parser.add_argument("--picture", type=Path, help="draw what was seen as an SVG")
    args = parser.parse_args()
    if reason := missing():
        print(f"left out: {reason}")
        return 3
    print(
        f"2 hosts x 2 workers, 1 Gb/s, {SIZE_BYTES / 1e6:.0f} MB; host 1: {HICCUP_S:g} s more in each "
        f"{EVERY}th window"
    )
    seen: dict[str, list[Seen]] = {strategy: [] for strategy in STRATEGIES}
    for number in range(args.rounds):
        for strategy in STRATEGIES:
            with hosts((RATE_BITS_PER_S,) * 2) as places:
                one = measured(places, strategy, args.steps)
            seen[strategy].append(one)
            print(
                f"round {number} {strategy:14} {one.batches_per_s:7.2f} batches/s "
                f"{one.bytes_per_batch / 1e6:7.2f} MB a batch of host 1",
                flush=True,
            )
    speed = {s: statistics.median(one.batches_per_s for one in seen[s]) for s in STRATEGIES}
    moved = {s: statistics.median(one.bytes_per_batch for one in seen[s]) for s in STRATEGIES}
    if args.picture is not None:
        draw(speed, moved, args.picture)
    return summary(speed, moved)


def draw(speed: dict[str, float], moved: dict[str, float], path: Path) -> None:
    """Both figures of each strategy as bars."""
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    shown = (
        ("batches/s, all workers", speed),
        ("MB between hosts a batch", {name: one / 1e6 for name, one in moved.items()}),
    )
    for axes, (title, values) in zip(figure.subplots(1, 2, sharey=True), shown, strict=True):
        bars = axes.barh(list(values), list(values.values()), color=LINE_COLOURS[0])
        axes.bar_label(bars, fmt="%.3g", padding=3)
        axes.margins(x=0.15)
        axes.set_title(title, fontsize=10)
    axes.invert_yaxis()
    figure.savefig(path)


def summary(speed: dict[str, float], moved: dict[str, float]) -> int:
    """The two goals, by medians of the rounds."""
    gain = speed["hybrid:async"] / speed["sync"]
    less = moved["hybrid:async"] / moved["async"]
    met = gain >= FASTER and less <= 0.55
    print(f"hybrid:async / sync, throughput: {gain:.2f} (goal >= {FASTER:g})")
    print(f"hybrid:async / async, bytes between hosts a batch: {less:.3f} (goal: half)")
    return 0 if met else 1


def measured(places: Sequence[Host], strategy: str, steps: int) -> Seen:
    """One run of both hosts."""
    job = Job(script=SCRIPT, args=[strategy, str(steps)], workers=2, words=["--strategy", strategy])
    said = "".join(launched(places, job, timeout_s=600))
    rows = [tuple(map(float, row)) for row in re.findall(r"took (\d) (\d+) (\S+) (\d+)", said)]
    there = [row for row in rows if row[0] == 1]
    return Seen(
        batches_per_s=sum(row[1] for row in rows) / max(row[2] for row in rows),
        bytes_per_batch=max(row[3] for row in there) / sum(row[1] for row in there),
    )


if __name__ == "__main__":
    sys.exit(main())
