"""Does ``paceline diagnose`` name who was slowed down, and nobody where nobody was? On real processes.

``python benchmarks/diagnose_injected.py --seed 7``: 60 runs with a cause drawn from the seed (who, in
which phase, persistent, bursty or transient, how much; 2 or 4 workers; all-reduce, the server's
rounds, async), and 40 clean ones (with jitter, some with hiccups of everybody). A cause counts as found
if the first finding names its rank and phase; a clean run as wrong if anybody is named.
``--lags 10``: runs whose one worker is delayed to a version lag of 20. ``--keep DIR``: runs that lie there
complete are not run again, so a benchmark that was broken off goes on, and a kept one is judged anew.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from paceline.diagnose.findings import Diagnosis
from paceline.diagnose.verdict import diagnose
from paceline.runs import rank_files, read_records, read_run
from paceline.trace import Close

SCRIPT = Path(__file__).parent / "scripts" / "injected.py"
WINDOWS = 120
STEP_S = 0.02
LONG_STEP_S = 0.06
PLANES = ("sync:allreduce", "sync:allreduce", "sync:server", "async")
"""Half of the runs on each plane."""
PHASES = ("data loading", "forward", "backward", "own code between steps", "optimizer")
LAGGING = PHASES[:3]
"""Between pull and push: what is done before the pull makes no gradient old."""
SIZES = {"persistent": (0.3, 3.0), "bursty": (1.5, 5.0), "transient": (3.0, 8.0)}
"""Seconds more in a slow window, over a step's: a third more at least, where it is always slow."""
GOAL_RIGHT = 57 / 60
Case = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--injected", type=int, default=60)
    parser.add_argument("--clean", type=int, default=40)
    parser.add_argument("--lags", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="keep the traces there, and use those there are")
    options = parser.parse_args()
    cases = drawn(options.seed, options.injected, options.clean, options.lags)
    with tempfile.TemporaryDirectory() as directory:
        result = judged(cases, options.keep or Path(directory))
    print(json.dumps({"seed": options.seed, **result}, indent=2))
    good = result["right"] >= GOAL_RIGHT * result["injected"] and not result["accused"]
    sys.exit(0 if good else 1)


def drawn(seed: int, injected: int, clean: int, lags: int) -> list[Case]:
    """The cases of a seed."""
    draw = random.Random(seed)
    cases = [_injected(draw, number) for number in range(injected)]
    cases += [_clean(draw, number) for number in range(clean)]
    return cases + [_lagging(draw, number) for number in range(lags)]


def _injected(draw: random.Random, number: int) -> Case:
    strategy, pattern = draw.choice(PLANES), draw.choice(list(SIZES))
    phases = PHASES if strategy == "sync:allreduce" else PHASES[:-1]
    low, high = SIZES[pattern]
    size_s = STEP_S * low * (high / low) ** draw.random()
    return faulty(
        draw, f"injected-{number}", strategy=strategy, phase=draw.choice(phases), pattern=pattern,
        added_s=_added_s(draw, pattern, size_s),
    )  # fmt: skip


def _added_s(draw: random.Random, pattern: str, size_s: float) -> list[float]:
    if pattern == "persistent":
        return [size_s * draw.uniform(0.9, 1.1) for _ in range(WINDOWS)]
    if pattern == "transient":
        chance = draw.uniform(0.1, 0.2)
        return [size_s * (draw.random() < chance) for _ in range(WINDOWS)]
    length = int(WINDOWS * draw.uniform(0.15, 0.4))
    start = draw.randrange(2, WINDOWS - length)
    return [size_s * (start <= k < start + length) for k in range(WINDOWS)]


def _clean(draw: random.Random, number: int) -> Case:
    hiccup = draw.choice([0.0, 0.0, 0.03])
    none = [0.0] * WINDOWS
    case = faulty(
        draw, f"clean-{number}", strategy=draw.choice(PLANES), phase="", pattern="", added_s=none
    )
    return {**case, "rank": -1, "hiccup": hiccup, "jitter": draw.uniform(0.0, 0.15)}


def _lagging(draw: random.Random, number: int) -> Case:
    """A window of the slow one lasts as long as 20 of the three others together.

    Their steps are long enough for this machine's own time, which comes on top, not to count.
    """
    added_s = [LONG_STEP_S * 1.15 * (20 / 3 - 1)] * (WINDOWS // 2)
    case = faulty(
        draw, f"lag-{number}", strategy="async", phase=draw.choice(LAGGING),
        pattern="persistent", added_s=added_s,
    )  # fmt: skip
    shorter = {"windows": len(added_s), "step_s": LONG_STEP_S}
    return {**case, **shorter, "workers": 4, "rank": draw.randrange(4)}


def faulty(draw: random.Random, name: str, **more: Any) -> Case:
    """A case; ``more``: where, in which phase, what is added in each window."""
    workers = draw.choice([2, 4])
    return {
        "name": name, "workers": workers, "rank": draw.randrange(workers), "windows": WINDOWS,
        "step_s": STEP_S, "jitter": 0.1, "hiccup": 0.0, "hiccup_factor": 4.0,
        "seed": draw.randrange(10**6), **more,
    }  # fmt: skip


def judged(cases: list[Case], directory: Path) -> dict[str, Any]:
    """Run them, one group of processes for each number of workers, and count."""
    missing = [case for case in cases if not _complete(case, directory / case["name"])]
    for workers in sorted({case["workers"] for case in missing}):
        _run([case for case in missing if case["workers"] == workers], workers, directory)
    right = accused = injected = clean = 0
    wrong: list[dict[str, Any]] = []
    for case in cases:
        diagnosis = diagnose(read_run(directory / case["name"]))
        fine = not _named(diagnosis) if case["rank"] < 0 else _hit(case, diagnosis)
        injected, clean = injected + (case["rank"] >= 0), clean + (case["rank"] < 0)
        right += fine and case["rank"] >= 0
        accused += not fine and case["rank"] < 0
        if not fine:
            facts = {name: case[name] for name in ("name", "workers", "strategy", "rank", "phase")}
            wrong.append({**facts, "pattern": case["pattern"], "verdict": diagnosis.verdict})
    return {
        "injected": injected, "right": right, "clean": clean, "accused": accused, "wrong": wrong,
    }  # fmt: skip


def _complete(case: Case, directory: Path) -> bool:
    """Whether ``directory`` holds the whole run of ``case``; what there is of half a run is removed."""
    if len(rank_files(directory)) == case["workers"] and all(
        any(isinstance(record, Close) for record in read_records(file))
        for _, file in rank_files(directory)
    ):
        return True
    shutil.rmtree(directory, ignore_errors=True)
    return False


def _run(cases: list[Case], workers: int, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"cases-{workers}.json"
    file.write_text(json.dumps(cases))
    command = [sys.executable, "-m", "paceline.cli", "run", "-n", str(workers), "--threads", "1"]
    command += [
        "--out",
        tempfile.mkdtemp(prefix=f"group-{workers}-", dir=directory),
        str(SCRIPT),
        str(file),
        str(directory),
    ]
    subprocess.run(command, check=True, stdout=sys.stderr)


def _hit(case: Case, diagnosis: Diagnosis) -> bool:
    first = next(iter(diagnosis.findings), None)
    lag = case["name"].startswith("lag-")
    return (
        first is not None
        and (first.ranks, first.phase) == ((case["rank"],), case["phase"])
        and (first.cause == "stale-worker" or not lag)
    )


def _named(diagnosis: Diagnosis) -> bool:
    return any(finding.ranks for finding in diagnosis.findings)


if __name__ == "__main__":
    main()
