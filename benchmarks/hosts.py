"""The server plane between two hosts: a step's time at 1 Gb/s against what the link allows.

Two network namespaces joined by a bridge (token-bucket filters), a worker in each, a model of 25 MB whose
computing is negligible. On the link's floor the worker elsewhere pushes and pulls 25 MB one after the other
(server plane), or both hosts exchange 25 MB at once (all-reduce of two). ``--compress``: what is sent instead;
the floor is that of its bytes then, as the trace has them. Needs root, ip and tc.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from prediction.launched import Job, launched
from prediction.namespaces import Host, hosts, missing

from paceline.runs import read_run

SIDE = 2500
SIZE_BYTES = 4 * SIDE * SIDE
RATE_BITS_PER_S = 1e9
GOODPUT = 1448 / 1538
"""Payload's share of an Ethernet frame, preamble and gap included."""
STEPS = 14
WARM_UP = 4
WAYS = {"sync:server": 2, "async": 2, "ssp:3": 2, "sync:allreduce": 1}
"""How often the model crosses the link in a step, one after the other."""
SCRIPT = Path(__file__).parent / "scripts" / "steps.py"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit status: 0; 3 where there can be no namespaces. About two minutes.",
    )  # fmt: skip
    parser.add_argument("--strategies", default=",".join(WAYS), help="comma-separated")
    parser.add_argument("--compress", default="none", help="blank-separated")
    args = parser.parse_args()
    if reason := missing():
        print(f"left out: {reason}")
        return 3
    print(
        f"{'strategy':15} {'compress':34} {'step':>8} {'fastest':>8} {'floor':>8} {'ratio':>6} "
        f"{'push':>8} {'pull':>8}   worker on host 1, {SIZE_BYTES / 1e6:g} MB"
    )
    for strategy in args.strategies.split(","):
        for word in args.compress.split():
            with hosts((RATE_BITS_PER_S,) * 2) as places:
                took_s, push_bytes, pull_bytes, said = measured(places, strategy, word)
            crossed = push_bytes + (pull_bytes if WAYS[strategy] == 2 else 0)
            step_s, floor_s = statistics.median(took_s), crossed * 8 / RATE_BITS_PER_S / GOODPUT
            print(
                f"{strategy:15} {word:34} {step_s:6.3f} s {min(took_s):6.3f} s {floor_s:6.3f} s "
                f"{step_s / floor_s:6.2f} {push_bytes / 1e6:5.2f} MB {pull_bytes / 1e6:5.2f} MB",
                flush=True,
            )
            if said:
                print(f"  {said}", flush=True)
    return 0


def measured(
    places: Sequence[Host], strategy: str, word: str
) -> tuple[list[float], float, float, str]:
    """Of the worker on the second host: times of steps in seconds, median bytes of a push and of a
    pull, and what the run said of compression."""
    with tempfile.TemporaryDirectory(prefix="bench-hosts-") as name:
        args = [strategy, word, *map(str, (SIDE, 1, STEPS))]
        job = Job(script=SCRIPT, args=args, out=Path(name))
        said = launched(places, job, timeout_s=500)
        steps = [one for rank in read_run(Path(name) / "1").ranks for one in rank.steps][WARM_UP:]
    took_s = [float(one) for one in re.findall(r"took (\S+)", said[1])]
    verdict = re.search(r"compress=.*", "\n".join(said))
    return (
        took_s[WARM_UP:],
        statistics.median(one.sent_bytes for one in steps),
        statistics.median(one.received_bytes for one in steps),
        verdict[0] if verdict else "",
    )


if __name__ == "__main__":
    sys.exit(main())
