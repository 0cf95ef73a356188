"""Real runs of every candidate on an emulated cluster, and when each reached the target.

All candidates of a cluster run one after another in the same processes, each with every seed; the lone
worker in a process of its own. Times are the emulated cluster's, as the trace of rank 0 has them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from advice.clusters import TARGET, WORKERS, Scene
from paceline.runs import read_records
from paceline.trace import Metric, Setup, Step

SCRIPT = Path(__file__).parents[1] / "scripts" / "advised.py"
ALONE = "1 worker"
CANDIDATES = (
    "sync", "sync accumulate=4", "backup:1", "ssp:3", "async", "async recipe=stable",
)  # fmt: skip
SECONDS_AT_MOST = 900

Times = dict[str, list[float | None]]
"""Seconds to target by candidate, an entry a seed; None if it was not reached."""


def measured(scene: Scene, candidates: Sequence[str], directory: Path, *, seeds: int) -> Times:
    """Raises RuntimeError with the run's own words if one failed."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cluster.toml").write_text(scene.toml)
    many = [one for one in candidates if one != ALONE]
    found = _launch(scene, many, directory, workers=WORKERS, seeds=seeds) if many else {}
    if ALONE in candidates:
        alone = _launch(scene, ["sync"], directory, workers=1, seeds=seeds)
        found[ALONE] = alone["sync"]
    return found


def _launch(
    scene: Scene, trials: Sequence[str], directory: Path, *, workers: int, seeds: int
) -> Times:
    cells = directory / f"cells-{workers}.txt"
    cells.write_text("\n".join(trials))
    out = directory / f"run-{workers}-{len(list(directory.iterdir()))}"
    command = [
        sys.executable, "-m", "paceline.cli", "run", "-n", str(workers), "--threads", "1", "--quiet",
        "--emulate", str(directory / "cluster.toml"), "--out", str(out), str(SCRIPT), *scene.args,
        "--cells", str(cells), "--seeds", str(seeds), "--target", str(TARGET),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS_AT_MOST
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    times = iter(list(_times(out / "rank-0.jsonl")))
    return {trial: [next(times) for _ in range(seeds)] for trial in trials}


def _times(path: Path) -> Iterator[float | None]:
    """Of each Worker that rank 0 made, in turn: seconds from its first window to the target."""
    began_s: float | None = None
    reached_s: float | None = None
    seen = False
    for record in read_records(path):
        if isinstance(record, Setup):
            if seen:
                yield reached_s
            seen, began_s, reached_s = True, None, None
        elif isinstance(record, Step) and began_s is None:
            began_s = record.time_s - record.pull_s
        elif isinstance(record, Metric) and reached_s is None and record.value <= TARGET:
            reached_s = None if began_s is None else record.time_s - began_s
    if seen:
        yield reached_s
