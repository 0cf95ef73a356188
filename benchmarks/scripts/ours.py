"""The user's side: an ordinary training script, whose passes are as long as the benchmark says."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness.models import TASKS
from harness.serving import Block, Deeds, serve, snapshot

import paceline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--line", required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--health", type=int, default=0)
    parser.add_argument("--clip-norm", type=float)
    parser.add_argument("--strategy", default="sync")
    parser.add_argument("--key", type=Path)
    parser.add_argument("--compress")
    args = parser.parse_args()

    torch.manual_seed(0)
    task = TASKS[args.task]
    model = task.build()
    worker = paceline.Worker(
        model,
        task.optimizer(model, args.momentum),
        strategy=args.strategy,
        runtime=paceline.Runtime(key=args.key),
        health=args.health or False,
        clip_norm=args.clip_norm,
        compress=args.compress,
    )
    loader = task.loader()

    def block(steps: int) -> dict[str, Any]:
        """A pass. It ends when every push is applied and all agree that it is over."""
        done = Block()
        applied, not_applied = 0, set()
        for inputs, targets in worker.batches(loader, steps=steps):
            done.batch_is_here()
            result = worker.step(task.loss(worker(inputs), targets))
            done.steps += result.window_ended
            applied += result.applied
            if result.window_ended and not result.applied:
                not_applied.add(result.reason)
        return done.ended(applied=applied, not_applied=sorted(not_applied), version=worker.version)

    deeds: Deeds = {"block": block, "snapshot": partial(snapshot, model, task, worker.rank)}
    serve(args.line, worker.rank, deeds)
    worker.close()


if __name__ == "__main__":
    main()
