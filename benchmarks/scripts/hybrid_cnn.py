"""The Fashion-MNIST CNN on hosts of which the last has hiccups: its first worker.

Strategy, recipe and seed come from `paceline run`. Prints what each rank did, and the test accuracy after
each epoch.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

import paceline
from recipes import fashion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--every", type=int, required=True, help="windows, of which one falters")
    parser.add_argument("--hiccup-s", type=float, required=True, help="by so much")
    args = parser.parse_args()

    launch = paceline.current_launch()
    per_host = launch.local_world_size or launch.world_size
    falters = launch.rank == launch.world_size - per_host
    task = fashion(held_out=False, samples=None)
    train = DataLoader(task.train, batch_size=task.batch, shuffle=True)
    test = DataLoader(task.test, batch_size=500)
    optimizer = task.optimizer(task.model.parameters(), lr=args.lr)
    worker = paceline.Worker(task.model, optimizer)
    worker.scheduler(
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
    )
    done, took_s = 0, 0.0
    for _ in range(args.epochs):
        began_s = time.monotonic()
        for inputs, targets in worker.batches(train):
            if falters and done % args.every == args.every - 1:
                time.sleep(args.hiccup_s)
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
            done += 1
        took_s += time.monotonic() - began_s
        with worker.evaluate():
            right = [
                task.score(worker(inputs), targets) for inputs, targets in worker.batches(test)
            ]
            score = worker.mean(sum(map(float, right)) / max(1, len(right)), len(right))
        if worker.rank == 0:
            print(f"score {score:.4f}", flush=True)
    worker.close()
    print(f"took {done} {took_s:.3f}", flush=True)


if __name__ == "__main__":
    main()
