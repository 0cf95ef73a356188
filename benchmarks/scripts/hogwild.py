"""The peer for asynchronous training: Hogwild, parameters in shared memory, no server, no locks.

Each worker has an optimizer (and momentum) of its own and steps by 1/N of the learning rate.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import torch
import torch.multiprocessing as mp
from harness.models import TASKS, again_and_again
from harness.serving import Block, Deeds, serve, snapshot
from torch import nn
from torch.utils.data import DistributedSampler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--line", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--momentum", type=float, default=0.9)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = TASKS[args.task].build()
    model.share_memory()
    context = mp.get_context("fork")
    workers = [
        context.Process(target=work, args=(args, rank, model), daemon=True)
        for rank in range(args.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def work(args: argparse.Namespace, rank: int, model: nn.Module) -> None:
    task = TASKS[args.task]
    optimizer = task.optimizer(model, args.momentum, share=1 / args.workers)
    sampler = DistributedSampler(task.data(), args.workers, rank, shuffle=False)
    loader = task.loader(sampler)

    def block(steps: int) -> dict[str, Any]:
        done = Block()
        for inputs, targets in again_and_again(loader, steps):
            done.batch_is_here()
            task.loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            done.steps += 1
        return done.ended()

    deeds: Deeds = {"block": block, "snapshot": partial(snapshot, model, task, rank)}
    serve(args.line, rank, deeds)


if __name__ == "__main__":
    main()
