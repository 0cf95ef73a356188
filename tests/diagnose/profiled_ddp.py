"""Profiles 34 steps of DistributedDataParallel over gloo: ``profiled_ddp.py RANK PORT PHASE DIRECTORY``.

Two ranks; rank 1 sleeps 30 ms in each step's PHASE (data, forward, backward, optimizer, script).
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset, default_collate

RANK, PORT, PHASE, DIRECTORY = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
STEPS = 34


def work(phase: str) -> None:
    slow = RANK == 1 and phase == PHASE
    time.sleep((0.01 if phase in ("forward", "backward") else 0.0) + 0.03 * slow)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        work("forward")
        hidden = self.first(x)
        hidden.register_hook(lambda _: work("backward"))
        return self.second(hidden)


def collate(samples: list[object]) -> object:
    work("data")
    return default_collate(samples)


def main() -> None:
    torch.set_num_threads(1)
    store = f"tcp://127.0.0.1:{PORT}"
    dist.init_process_group("gloo", rank=RANK, world_size=2, init_method=store)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.register_step_pre_hook(lambda *_: work("optimizer"))
    data = TensorDataset(torch.randn((STEPS + 2) * 8, 64))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(f"{DIRECTORY}/rank{RANK}.json"),
    ) as profiler:
        for (x,) in DataLoader(data, batch_size=8, collate_fn=collate):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            work("script")
            profiler.step()
    dist.barrier()


if __name__ == "__main__":
    main()
