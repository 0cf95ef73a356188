"""Trains a network whose matrices are large enough to be compressed, at a pace that is never the same."""

from __future__ import annotations

import time

import torch
from torch import nn

import paceline

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(40, 50), nn.Tanh(), nn.Linear(50, 30))
weight = torch.randn(40, 30)
data = [torch.randn(4, 40) for _ in range(30)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
with paceline.Worker(model, optimizer) as worker:
    pause = time.time_ns()
    for inputs in worker.batches(data):
        pause = (pause * 6364136223846793005 + worker.rank + 1) % 2**64
        time.sleep(0.004 * (pause >> 32) / 2**31)
        worker.step(nn.functional.mse_loss(worker(inputs), torch.tanh(inputs @ weight)))
