"""Model A (25 x Linear(1000, 1000), batches of 8) on two hosts: ``hybrid.py STRATEGY STEPS``.

Every fifth window of host 1 takes ``HICCUP_S`` longer, on all its workers at once. Prints what each rank
did and what its host's port has moved.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import paceline

SIDE, LAYERS, BATCH = 1000, 25, 8
SIZE_BYTES = 4 * LAYERS * SIDE * SIDE
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
    layers = [torch.nn.Linear(SIDE, SIDE, bias=False) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    data = TensorDataset(torch.randn(BATCH * launch.world_size * steps, SIDE))
    done, began_s, began_bytes = 0, 0.0, 0
    with paceline.Worker(model, optimizer, strategy=strategy) as worker:
        for (inputs,) in worker.batches(DataLoader(data, batch_size=BATCH)):
            if not done:
                began_s, began_bytes = time.monotonic(), port_bytes()
            if host == 1 and done % EVERY == EVERY - 1:
                time.sleep(HICCUP_S)
            worker.step(worker(inputs).square().mean())
            done += 1
        took_s, moved = time.monotonic() - began_s, port_bytes() - began_bytes
    print(f"took {host} {done} {took_s:.3f} {moved}", flush=True)


if __name__ == "__main__":
    main()
