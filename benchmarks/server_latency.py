"""One worker, an idle server, a tiny model: push + decision + pull, and where the time goes.

    python benchmarks/server_latency.py

Goal: a median of at most 0.3 ms for model B, 8 x Linear(64, 64), SGD.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from paceline.server.process import start_server
from paceline.transport import messages
from server.stand_in import StandIn

ROUNDS = 2000
WARM_UP = 100
NAMES = ("round", "push + decision", "of it in the update", "pull")


def main() -> None:
    """Print the quantiles of one round, and of its parts."""
    torch.set_num_threads(1)
    values = [torch.randn(shape) for _ in range(8) for shape in ((64, 64), (64,))]
    with tempfile.TemporaryDirectory() as name:
        server = start_server(directory=Path(name), out=Path(name), parent_pid=None)
        worker = StandIn(server.address, 0, 1)
        worker.ask(worker.opening(values, "async"), 60.0)
        worker.open_pass(None)
        rounds = [one_round(worker, values) for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
        worker.leave()
        server.wait(10.0)
    parts = dict(zip(NAMES, zip(*rounds, strict=True), strict=True))
    figures = {name: quantiles_ms(times) for name, times in parts.items()}
    if "--json" in sys.argv[1:]:
        print(json.dumps(figures))
        return
    for name, found in figures.items():
        median, low, high = found["median"], found["p10"], found["p90"]
        print(f"{name:>20}: median {median:.3f} ms, {low:.3f}-{high:.3f}")


def quantiles_ms(times_s: Sequence[float]) -> dict[str, float]:
    """Median, 10th and 90th percentile in milliseconds."""
    ordered = sorted(times_s)
    picks = {"p10": len(ordered) // 10, "median": len(ordered) // 2, "p90": -len(ordered) // 10}
    return {name: ordered[index] * 1e3 for name, index in picks.items()}


def one_round(worker: StandIn, values: list[torch.Tensor]) -> tuple[float, ...]:
    """Seconds of one window without its computation."""
    worker.ask(messages.Ready())
    push = worker.pushing(values)
    begin = time.perf_counter()
    decided = worker.ask(push)
    between = time.perf_counter()
    worker.ask(messages.Ready())
    end = time.perf_counter()
    worker.ask(push)
    return end - begin, between - begin, decided.applied_s, end - between


if __name__ == "__main__":
    main()
