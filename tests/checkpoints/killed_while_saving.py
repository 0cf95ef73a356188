"""``killed_while_saving.py DIRECTORY KILLS``: kills KILLS processes with SIGKILL while they save.

Each is a fork of this one (which has imported torch) that trains and saves as fast as it can, and is
killed at a random moment. After each, the newest checkpoint must load.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

import paceline
from paceline import checkpoints
from paceline.worker import snapshot

torch.set_num_threads(1)


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300))
    return model, torch.optim.Adam(model.parameters())


def save_for_ever(directory: Path) -> None:
    model, optimizer = build()
    worker = paceline.Worker(model, optimizer)
    if checkpoints.found(directory):
        worker.load(directory)
    for inputs in worker.batches([torch.ones(1, 300)] * 100_000):
        worker.step(worker(inputs).square().mean())
        worker.save(directory, keep=2)


def kill_one(directory: Path, stream: random.Random) -> int:
    """How many directories were begun and not finished when the process died (0 or 1)."""
    before = checkpoints.found(directory)[-1:]
    pid = os.fork()
    if pid == 0:
        os.close(2)
        os.open(os.devnull, os.O_WRONLY)
        save_for_ever(directory)
        os._exit(1)
    while checkpoints.found(directory)[-1:] == before:
        time.sleep(0.002)
    time.sleep(stream.uniform(0, 0.15))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return len(list(directory.glob(".partial-*")))


def main() -> None:
    directory, kills = Path(sys.argv[1]), int(sys.argv[2])
    stream = random.Random(0)
    torn = 0
    for _ in range(kills):
        torn += kill_one(directory, stream)
        model, optimizer = build()
        snapshot.put_into(snapshot.read(directory), model, optimizer, rank=0)
    print(f"{kills} kills, {torn} in the midst of writing, always a whole checkpoint")


if __name__ == "__main__":
    main()
