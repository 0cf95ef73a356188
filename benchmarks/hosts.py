"""The server plane between two hosts: a step's time at 1 Gb/s against what the link allows.

Two network namespaces joined by a bridge (token-bucket filters), a worker in each, a model of 25 MB whose
computing is negligible. On the link's floor the worker elsewhere pushes and pulls 25 MB one after the other
(server plane), or both hosts exchange 25 MB at once (all-reduce of two). Needs root, ip and tc.
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

SIDE = 2500
SIZE_BYTES = 4 * SIDE * SIDE
RATE_BITS_PER_S = 1e9
GOODPUT = 1448 / 1538
"""Payload's share of an Ethernet frame, preamble and gap included."""
STEPS = 14
WARM_UP = 4
WAYS = {"sync:server": 2, "async": 2, "ssp:3": 2, "sync:allreduce": 1}
"""How often the model crosses the link in a step, one after the other."""
SCRIPT = f"""
import sys, time, torch, paceline
model = torch.nn.Linear({SIDE}, {SIDE}, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
data = torch.utils.data.TensorDataset(torch.randn(8 * {STEPS}, {SIDE}))
with paceline.Worker(model, optimizer, strategy=sys.argv[1]) as worker:
    last = None
    for (inputs,) in worker.batches(torch.utils.data.DataLoader(data), steps={STEPS}):
        worker.step(worker(inputs).square().mean())
        now = time.monotonic()
        if last is not None:
            print("took", now - last, flush=True)
        last = now
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit status: 0; 3 where there can be no namespaces. About two minutes.",
    )  # fmt: skip
    parser.add_argument("--strategies", default=",".join(WAYS), help="comma-separated")
    args = parser.parse_args()
    if reason := missing():
        print(f"left out: {reason}")
        return 3
    floor_s = SIZE_BYTES * 8 / RATE_BITS_PER_S / GOODPUT
    print(
        f"{'strategy':16} {'step':>8} {'floor':>8} {'ratio':>6}   worker on host 1, {SIZE_BYTES / 1e6:g} MB"
    )
    for strategy in args.strategies.split(","):
        with hosts((RATE_BITS_PER_S,) * 2) as places:
            step_s = measured(places, strategy)
        floor = WAYS[strategy] * floor_s
        print(f"{strategy:16} {step_s:6.3f} s {floor:6.3f} s {step_s / floor:6.2f}", flush=True)
    return 0


def measured(places: Sequence[Host], strategy: str) -> float:
    """Median time of a step of the worker on the second host, in seconds."""
    with tempfile.TemporaryDirectory(prefix="bench-hosts-") as name:
        script = Path(name) / "train.py"
        script.write_text(SCRIPT)
        said = launched(places, Job(script=script, args=[strategy]), timeout_s=300)
    took_s = [float(one) for one in re.findall(r"took (\S+)", said[1])]
    return statistics.median(took_s[WARM_UP:])


if __name__ == "__main__":
    sys.exit(main())
