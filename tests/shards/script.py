"""Trains something that two hosts divide, and says where it ended: ``script.py STRATEGY SLEEP_S [FROM TO]``.

``FROM``: the checkpoint to go on from ("-": none); ``TO``: where to save after each step ("-": nowhere).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline.worker import server_plane, shared_gradients

shared_gradients.BUCKET_BYTES = server_plane.BUCKET_BYTES = 4096  # so that this can be divided


def main() -> None:
    strategy, sleep_s, start, save = sys.argv[1], float(sys.argv[2]), *sys.argv[3:5]
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(8, 600), nn.Tanh(), nn.Linear(600, 60), nn.Tanh(), nn.Linear(60, 3)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(160, 8), torch.randint(0, 3, (160,)))
    criterion = nn.CrossEntropyLoss()
    with paceline.Worker(model, optimizer, strategy=strategy, clip_norm=0.5) as worker:
        if start != "-":
            worker.load(start)
        for number, (inputs, targets) in enumerate(worker.batches(DataLoader(data, batch_size=4))):
            time.sleep(sleep_s)
            worker.step(criterion(worker(inputs), targets))
            if save != "-" and number == 7:
                worker.save(Path(save), keep=99)
            if number == 9:
                with worker.evaluate():
                    assert torch.isfinite(model(inputs)).all()
        assert worker.verify() is None
        with worker.evaluate():
            loss = worker.mean(float(criterion(model(data.tensors[0]), data.tensors[1])), 160)
    moments = sum(
        float(value.double().abs().sum())
        for state in optimizer.state_dict()["state"].values()
        for value in state.values()
    )
    total = sum(float(p.detach().double().abs().sum()) for p in model.parameters())
    print(f"end {loss:.12f} {total:.12f} {moments:.12f} end", flush=True)


if __name__ == "__main__":
    main()
