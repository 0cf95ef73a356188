"""One worker, an idle server, a tiny model: push + decision + pull, and where the time goes.

    python benchmarks/server_latency.py

Goal (issue 3): a median of at most 0.3 ms for model B, 8 x Linear(64, 64), SGD.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from paceline.server.process import start_server
from paceline.transport import messages
from server.stand_in import StandIn

ROUNDS = 2000
WARM_UP = 100


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
    names = ("round", "push + decision", "of it in the update", "pull", "of it in the copy")
    for title, times in zip(names, zip(*rounds, strict=True), strict=True):
        ordered = sorted(times)
        p10, p90 = ordered[len(ordered) // 10], ordered[-len(ordered) // 10]
        print(f"{title:>20}: median {median(times) * 1e3:.3f} ms, {p10 * 1e3:.3f}-{p90 * 1e3:.3f}")


def one_round(worker: StandIn, values: list[torch.Tensor]) -> tuple[float, ...]:
    """Seconds of one window without its computation."""
    started = worker.ask(messages.Ready())
    push = worker.pushing(values)
    begin = time.perf_counter()
    decided = worker.ask(push)
    between = time.perf_counter()
    started = worker.ask(messages.Ready())
    end = time.perf_counter()
    worker.ask(push)
    return end - begin, between - begin, decided.applied_s, end - between, started.copied_s


if __name__ == "__main__":
    main()
