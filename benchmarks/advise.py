"""``make bench-advise``: is the advice right? Eight clusters from --seed, advised and then measured.

Of each cluster: ``paceline advise`` probes in virtual time; then every candidate is run for real
(``paceline run --emulate``), three seeds each, and its time to the target taken (held-out loss, median).
Right: the recommended one is at most 10 % behind the best candidate (said apart: a difference within its
standard error over the seeds, which three seeds often leave). Also: never ssp for a persistent
straggler, sync for the uniform cluster. And how often the course's probe ("ten epochs each, does it
oscillate?": async unless its loss does) alone would have been right.

What was measured is kept, cluster by cluster, in --store; a second call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from advice import picture
from advice.clusters import TARGET, Scene, scenes
from advice.measured import ALONE, CANDIDATES, SCRIPT, measured

BENCHMARKS = Path(__file__).resolve().parent
STORE = BENCHMARKS / "results" / "advise.jsonl"
WORK = BENCHMARKS.parent / "runs" / "bench-advise"
BEHIND = 1.10
Document = dict[str, Any]


def main() -> int:
    args = _arguments()
    known = _known(args.store, args.seed)
    try:
        for scene in scenes(args.seed):
            if args.stored or args.only not in (None, scene.kind) or scene.kind in known:
                continue
            known[scene.kind] = _examined(scene, args)
            with args.store.open("a") as file:
                file.write(json.dumps(known[scene.kind]) + "\n")
            print(_line(known[scene.kind]), flush=True)
    except KeyboardInterrupt:
        print("\ninterrupted; a second call goes on from here")
    rows = list(known.values())
    if args.svg is not None:
        picture.draw(rows, args.svg)
    print("\n" + _table(rows))
    return int(not all(_right(row) for row in rows) or len(rows) < 8)


def _examined(scene: Scene, args: argparse.Namespace) -> Document:
    directory = WORK / f"seed-{args.seed}" / scene.kind.replace(" ", "-")
    directory.mkdir(parents=True, exist_ok=True)
    cluster = directory / "cluster.toml"
    cluster.write_text(scene.toml)
    advice = _advised(scene, cluster, directory / "probes", args.probe_seeds)
    candidates = list(dict.fromkeys([ALONE, *CANDIDATES, advice["choice"] or "sync"]))
    print(
        f"{scene.kind}: {advice['answer']} Measuring {len(candidates)} candidates ...", flush=True
    )
    times = measured(scene, candidates, directory / "measured", seeds=args.seeds)
    return {
        "seed": args.seed, "kind": scene.kind, "choice": advice["choice"], "answer": advice["answer"],
        "course": _course(advice), "times_s": times, "predicted_s": _predicted(advice),
        "probe_seeds": args.probe_seeds, "probes": len(advice["probes"]),
    }  # fmt: skip


def _advised(scene: Scene, cluster: Path, out: Path, seeds: int) -> Document:
    command = [
        sys.executable, "-m", "paceline.cli", "advise", "--for", str(cluster), "--json",
        "--seeds", str(seeds), "--target", f"loss<={TARGET}", "--out", str(out), str(SCRIPT), *scene.args,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(" ".join(command))
    document: Document = json.loads(done.stdout)
    return document


def _course(advice: Document) -> str | None:
    """async, unless its probes oscillated or worse; None if the advice needed no probe of it."""
    words = {row["candidate"]: row["stability"] for row in advice["rows"]}
    if "async" not in words:
        return None
    harmed = words.get("async") in ("DIVERGED", "OSCILLATES", "WORSE")
    return "sync" if harmed else "async"


def _predicted(advice: Document) -> dict[str, float | None]:
    return {row["candidate"]: row["time_s"] for row in advice["rows"]}


def medians(row: Document) -> dict[str, float]:
    """Seconds to target by candidate; inf if most seeds did not reach it."""
    return {
        name: median([inf if one is None else one for one in times])
        for name, times in row["times_s"].items()
    }


def behind(row: Document, choice: str | None) -> float:
    """The choice's time over the best candidate's."""
    found = medians(row)
    return found.get(choice or "", inf) / min(found.values())


def _tied(row: Document) -> bool:
    """Whether the choice's distance to the best, seed by seed, is within its standard error."""
    found = medians(row)
    best = min(found, key=lambda name: found[name])
    pairs = list(
        zip(row["times_s"].get(row["choice"] or "", []), row["times_s"][best], strict=False)
    )
    if len(pairs) < 2 or any(None in pair for pair in pairs):
        return False
    differences = [own - other for own, other in pairs]
    return mean(differences) <= stdev(differences) / len(differences) ** 0.5


def _right(row: Document) -> bool:
    choice = row["choice"] or ""
    if row["kind"] == "uniform" and choice != "sync":
        return False
    if row["kind"].startswith("persistent") and choice.startswith("ssp"):
        return False
    return behind(row, choice) <= BEHIND


def _line(row: Document) -> str:
    found = medians(row)
    best = min(found, key=lambda name: found[name])
    course = "-" if row["course"] is None else f"{row['course']} {behind(row, row['course']):.2f}"
    verdict = "ok" if _right(row) else "tie within the seeds' spread" if _tied(row) else "MISSED"
    return (
        f"{row['kind']:15} {row['choice']!s:28} {behind(row, row['choice']):6.2f}   best {best:22} "
        f"{found[best]:6.2f} s   course: {course:12} {verdict}"
    )


def _table(rows: Sequence[Document]) -> str:
    right = sum(_right(row) for row in rows)
    asked = [row for row in rows if row["course"] is not None]
    course = sum(behind(row, row["course"]) <= BEHIND for row in asked)
    head = "cluster         recommended                  / best"
    total = (
        f"{right} of {len(rows)} right (within 10 % of the best measured); the course's probe alone: "
        f"{course} of {len(asked)}"
    )
    return "\n".join([head, *map(_line, rows), total])


def _known(store: Path, seed: int) -> dict[str, Document]:
    lines = store.read_text().splitlines() if store.exists() else []
    return {one["kind"]: one for one in map(json.loads, lines) if one["seed"] == seed}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="of the eight clusters [0]")
    parser.add_argument("--only", help="one kind of cluster")
    parser.add_argument("--seeds", type=int, default=3, help="of the measured runs [3]")
    parser.add_argument("--probe-seeds", type=int, default=3, help="of the advice's probes [3]")
    parser.add_argument("--store", type=Path, default=STORE, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw what was measured")
    parser.add_argument("--stored", action="store_true", help="measure nothing, show what is there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
