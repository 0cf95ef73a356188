"""``make bench``: is paceline faster than its peers, and by how much?

Every figure against a peer is a ratio of interleaved blocks in this call: both sides are started
once and take turns, the waiting one asleep; after warm-up the median of the paired ratios counts,
and their range says how sure it is. One thread per process. What is compared and what the
columns mean: docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from harness.bench import Bench
from harness.goals import verdict_of
from harness.results import Row, load, merged, save
from harness.table import print_floors, print_notes, print_rows
from parts import contests, cores, floor, growth, memory, numbers, overhead, trace_cost
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "benchmarks" / "results" / "stored.json"
LATEST = ROOT / "runs" / "bench.json"
PARTS = (contests, floor, memory, growth, overhead, numbers, trace_cost, cores)
EPILOG = """\
examples:
  benchmarks/run.py --only '^A N=2 sync$'      one row
  benchmarks/run.py --only 'async|Hogwild'     whatever contains one of these
  benchmarks/run.py --only N=2 --quick         a first look: two short pairs, ranges mean little
  benchmarks/run.py --store                    keep these rows for later calls to compare with

exit status: 0, also if a goal is missed (--strict: 1); 1 if a check failed, that is, if both sides
did not do the same work, or one did not run; 130 after Ctrl-C, which prints what there is.
Let nothing else run meanwhile: two busy processes more make every ratio meaningless."""


def main(parts: Sequence[ModuleType] = PARTS) -> int:
    args = _arguments()
    console = Console() if sys.stdout.isatty() else Console(width=120, soft_wrap=True)
    stored = load(STORED)
    began_s = time.monotonic()
    rows: list[Row] = []
    interrupted = False
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        for row in _measured(args, console, parts):
            rows.append(row)
            _say_finished(console, row)
    except KeyboardInterrupt:
        interrupted = True
    print_rows(console, rows, stored)
    print_floors(console, floor.floors({row.key: row for row in rows}))
    print_notes(console, rows)
    machine = _machine(args)
    save(args.json, machine, rows)
    if args.store:
        save(STORED, machine, merged(stored, rows))
    console.print(f"{time.monotonic() - began_s:.0f} s; written to {args.json}", highlight=False)
    return 130 if interrupted else _status(rows, strict=args.strict)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", type=_pattern, default="", metavar="REGEX", help="rows whose name contains this"
    )
    parser.add_argument("--pairs", type=int, default=5, help="pairs of blocks a ratio [5]")
    parser.add_argument("--block-s", type=float, default=0.9, help="seconds a block lasts [0.9]")
    parser.add_argument("--quick", action="store_true", help="same as --pairs 2 --block-s 0.4")
    parser.add_argument("--json", type=Path, default=LATEST, metavar="PATH", help=f"[{LATEST}]")
    parser.add_argument("--store", action="store_true", help=f"also into {STORED}")
    parser.add_argument("--strict", action="store_true", help="a missed goal fails, too")
    args = parser.parse_args()
    if args.quick:
        args.pairs, args.block_s = 2, 0.4
    return args


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _measured(
    args: argparse.Namespace, console: Console, parts: Sequence[ModuleType]
) -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        console.status("starting") as status,
    ):
        bench = Bench(
            pairs=args.pairs,
            block_s=args.block_s,
            only=args.only,
            directory=Path(name),
            say=_sayer(status.update),
        )
        for part in parts:
            yield from part.measure(bench)


def _sayer(update: Callable[[str], None]) -> Callable[[str], None]:
    began_s = time.monotonic()
    return lambda text: update(f"{time.monotonic() - began_s:4.0f} s  {text}")


def _say_finished(console: Console, row: Row) -> None:
    value = "-" if row.value is None else f"{row.value:,.4g}"
    verdict = verdict_of(row.key, row.value, row.failure)
    console.print(f"{row.key:<28} {value:>10} {row.unit:<6} {verdict}", highlight=False)


def _status(rows: list[Row], *, strict: bool) -> int:
    verdicts = {verdict_of(row.key, row.value, row.failure) for row in rows}
    return int("FAILED" in verdicts or (strict and "MISSED" in verdicts))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _machine(args: argparse.Namespace) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": commit.stdout.strip() or "unknown",
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "torch": version("torch"),
        "python": platform.python_version(),
        "pairs": args.pairs,
        "block_s": args.block_s,
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    sys.exit(main())
