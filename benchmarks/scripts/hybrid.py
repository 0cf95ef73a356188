"""A training step of given length on two hosts, of which the second has hiccups: ``hybrid.py STRATEGY STEPS``.

Computing is a sleep, so that four workers fit two cores; every fifth window of host 1 takes ``HICCUP_S``
longer, on all its workers at once. Prints what each rank did and what its host's port has moved.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import paceline

SIDE = 1600
COMPUTE_S = 0.15
HICCUP_S = 0.5
EVERY = 5
PORT = Path("/sys/class/net/port0/statistics")


def port_bytes() -> int:
    return sum(int((PORT / name).read_text()) for name in ("rx_bytes", "tx_bytes"))


def main() -> None:
    strategy, steps = sys.argv[1], int(sys.argv[2])
    launch = paceline.current_launch()
    host = launch.rank // (launch.local_world_size or launch.world_size)
    torch.manual_seed(0)
    model = torch.nn.Linear(SIDE, SIDE, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    data = TensorDataset(torch.randn(4 * launch.world_size * steps, SIDE))
    done, began_s, began_bytes = 0, 0.0, 0
    with paceline.Worker(model, optimizer, strategy=strategy) as worker:
        for (inputs,) in worker.batches(DataLoader(data, batch_size=4)):
            if not done:
                began_s, began_bytes = time.monotonic(), port_bytes()
            late_s = HICCUP_S if host == 1 and done % EVERY == EVERY - 1 else 0.0
            time.sleep(COMPUTE_S + late_s)
            worker.step(worker(inputs).square().mean())
            done += 1
        took_s, moved = time.monotonic() - began_s, port_bytes() - began_bytes
    print(f"took {host} {done} {took_s:.3f} {moved}", flush=True)


if __name__ == "__main__":
    main()
