"""One shard against one on each host: a step's time at 1 Gb/s against what the ports allow.

Network namespaces joined by a bridge (token-bucket filters), a worker in each, a model of 25 MB whose
computing is negligible. Floor of N hosts: with one shard host 0's port takes in N - 1 pushes, then sends as
many pulls; with a shard on each host every port takes in and sends (N - 1)/N of a model. Needs root, ip and tc.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from itertools import product
from pathlib import Path

from prediction.launched import Job, launched
from prediction.namespaces import hosts, missing

SIDE, LAYERS = 625, 16
SIZE_BYTES = 4 * LAYERS * SIDE * SIDE
RATE_BITS_PER_S = 1e9
GOODPUT = 1448 / 1538
"""Payload's share of an Ethernet frame, preamble and gap included."""
STEPS = {"sync:server": 14, "async": 140}
"""Of each worker, on average: those on host 0 make most of async's."""
WARM_UP = 4
SCRIPT = Path(__file__).parent / "scripts" / "steps.py"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit status: 0; 3 where there can be no namespaces. A row takes half a minute.",
    )  # fmt: skip
    parser.add_argument("--strategies", default=",".join(STEPS), help="comma-separated")
    parser.add_argument("--hosts", default="2,4", help="how many, comma-separated")
    parser.add_argument("--shards", default="1,hosts", help="1, hosts, or both, comma-separated")
    args = parser.parse_args()
    if reason := missing():
        print(f"left out: {reason}")
        return 3
    print(
        f"{'strategy':12} {'hosts':>5} {'shards':>6} {'step':>8} {'floor':>8} {'ratio':>6}   "
        f"worker on the last host, {SIZE_BYTES / 1e6:g} MB"
    )
    for count, strategy, shards in product(
        map(int, args.hosts.split(",")), args.strategies.split(","), args.shards.split(",")
    ):
        step_s, said = measured(count, strategy, shards)
        floor = floor_s(count, shards)
        print(
            f"{strategy:12} {count:5} {shards:>6} {step_s:6.3f} s {floor:6.3f} s {step_s / floor:6.2f}  {said}",
            flush=True,
        )
    return 0


def floor_s(count: int, shards: str) -> float:
    """What the busiest port needs for a step of all hosts, in, then out."""
    models = (count - 1) / count if shards == "hosts" else count - 1
    return 2 * models * SIZE_BYTES * 8 / RATE_BITS_PER_S / GOODPUT


def measured(count: int, strategy: str, shards: str) -> tuple[float, str]:
    """Median time of a step of the worker on the last host, in seconds, and how parameters are divided."""
    args = [strategy, "none", *map(str, (SIDE, LAYERS, STEPS[strategy]))]
    job = Job(script=SCRIPT, args=args, words=["--shards", shards])
    with hosts((RATE_BITS_PER_S,) * count) as places:
        said = launched(places, job, timeout_s=900)
    took_s = [float(one) for one in re.findall(r"took (\S+)", said[-1])]
    divided = re.search(r"the parameters are divided.*", said[0])
    return statistics.median(took_s[WARM_UP:]), divided[0] if divided else ""


if __name__ == "__main__":
    sys.exit(main())
