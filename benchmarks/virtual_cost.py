"""What a gradient costs in virtual time against a plain loop's: ``python benchmarks/virtual_cost.py``.

Processor time per batch of Fashion-MNIST's CNN (two strided convolutions, a hidden layer of 64, batch
32), server, trace and hand-overs included. Pairs alternate: plain loop, sync, async with 8 virtual
workers; medians and ranges of the paired ratios. ``--memory``: 128 virtual workers that each load all
60,000 images, and the largest Pss of their process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

SCRIPT = Path(__file__).parent / "scripts" / "virtual_cnn.py"
CLUSTER = """
[workers]
count = {workers}
step_s = 0.05
jitter = 0.1

[hiccups]
probability = 0.05
factor = 3.0
"""
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=30_000)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    if options.memory:
        _, summary = virtual(128, "async", 60_000)
        print(json.dumps({"workers": 128, "peak_pss_bytes": summary["peak_pss_bytes"]}))
        return
    ratios: dict[str, list[float]] = {"sync": [], "async": []}
    for _ in range(options.pairs):
        plain_ms = per_batch_ms([sys.executable, str(SCRIPT), str(options.samples), "--plain"])
        for strategy, found in ratios.items():
            cost_ms, _ = virtual(8, strategy, options.samples)
            found.append(cost_ms / plain_ms)
            print(f"{strategy}: {cost_ms:.2f} ms, plain loop {plain_ms:.2f} ms", file=sys.stderr)
    print(json.dumps({
        name: {"ratio": median(found), "range": [min(found), max(found)]}
        for name, found in ratios.items()
    }))  # fmt: skip


def virtual(workers: int, strategy: str, samples: int) -> tuple[float, dict[str, float]]:
    """Milliseconds per batch, and the run's summary."""
    with tempfile.TemporaryDirectory() as directory:
        cluster, out = Path(directory) / "cluster.toml", Path(directory) / "run"
        cluster.write_text(CLUSTER.format(workers=workers))
        command = [sys.executable, "-m", "paceline.cli", "run", "--virtual", str(cluster)]
        command += ["--strategy", strategy, "--out", str(out), "--threads", "1", "--quiet"]
        cost_ms = per_batch_ms([*command, str(SCRIPT), str(samples)])
        return cost_ms, json.loads((out / "run.json").read_text())


def per_batch_ms(command: list[str]) -> float:
    done = subprocess.run(command, env=ONE_THREAD, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
