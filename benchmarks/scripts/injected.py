"""Trains a tiny model once for each case of a file, slowing down whom and where the case says.

``injected.py CASES.json DIRECTORY``: each case is recorded in a directory of its own. A step sleeps
instead of computing, half in forward and half in backward, so that two cores emulate many machines.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

import paceline
from paceline.launch.context import Launch, current_launch, install

BATCH = 4


class Delays:
    """What each window of this rank takes, in seconds: from its index in this rank's own order."""

    def __init__(self, case: dict[str, Any], rank: int) -> None:
        draw = random.Random(f"{case['seed']}-{rank}")
        self.window = 0
        self.own_s = [self._own_s(case, draw) for _ in range(len(case["added_s"]))]
        self._phase = case["phase"] if rank == case["rank"] else ""
        self._added_s = case["added_s"]

    def wait(self, phase: str) -> None:
        """Sleep for what this phase takes in this window."""
        place = self.window % len(self.own_s)
        wanted_s = self.own_s[place] / 2 if phase in ("forward", "backward") else 0.0
        time.sleep(wanted_s + (self._added_s[place] if phase == self._phase else 0.0))

    @staticmethod
    def _own_s(case: dict[str, Any], draw: random.Random) -> float:
        longer = case["hiccup_factor"] if draw.random() < case["hiccup"] else 1.0
        return float(case["step_s"] * (1.0 + case["jitter"] * draw.expovariate(1.0)) * longer)


class Slowed(nn.Module):
    """Two layers; sleeps in its forward, and in its backward between their gradients."""

    def __init__(self, delays: Delays) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 2)
        self._delays = delays

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._delays.wait("forward")
        hidden = torch.tanh(self.first(x))
        hidden.register_hook(lambda _: self._delays.wait("backward"))
        return self.second(hidden)


def train(case: dict[str, Any], rank: int, world_size: int) -> None:
    torch.manual_seed(0)
    delays = Delays(case, rank)

    def collate(samples: list[Any]) -> Any:
        delays.wait("data loading")
        return default_collate(samples)

    count = case["windows"] * world_size * BATCH
    data = TensorDataset(torch.randn(count, 8), torch.arange(count) % 2)
    model = Slowed(delays)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.register_step_pre_hook(lambda *_: delays.wait("optimizer"))
    loader = DataLoader(data, batch_size=BATCH, collate_fn=collate)
    with paceline.Worker(model, optimizer, strategy=case["strategy"]) as worker:
        for x, y in worker.batches(loader):
            worker.step(nn.functional.cross_entropy(worker(x), y))
            delays.wait("own code between steps")
            delays.window += 1


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text())
    launch: Launch = current_launch()
    for case in cases:
        install(replace(launch, out=Path(sys.argv[2]) / case["name"]))
        train(case, launch.rank, launch.world_size)
        if launch.rank == 0:
            print(case["name"], flush=True)


if __name__ == "__main__":
    main()
