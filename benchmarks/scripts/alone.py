"""One worker beside the plain loop, in one process: what the library adds to a step.

Two models of the same kind are trained in turn, so that both loops meet the same process, caches
and clock rate; in two processes these alone differ by more than the goal.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from time import process_time
from typing import Any

import torch
from harness.models import TASKS, again_and_again
from harness.serving import serve

import paceline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--line", required=True)
    parser.add_argument("--task", required=True)
    args = parser.parse_args()

    task = TASKS[args.task]
    plain, model = task.build(), task.build()
    optimizer = task.optimizer(plain, 0.9)
    worker = paceline.Worker(model, task.optimizer(model, 0.9))
    loader = task.loader()

    def plain_step(inputs: torch.Tensor, targets: torch.Tensor) -> None:
        loss = task.loss(plain(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def worker_step(inputs: torch.Tensor, targets: torch.Tensor) -> None:
        worker.step(task.loss(worker(inputs), targets))

    def plainly(steps: int) -> float:
        return cpu_s(again_and_again(loader, steps), plain_step) / steps

    def with_worker(steps: int) -> float:
        return cpu_s(worker.batches(loader, steps=steps), worker_step) / steps

    def pair(steps: int, plain_first: bool) -> dict[str, Any]:
        if plain_first:
            peer_s, ours_s = plainly(steps), with_worker(steps)
        else:
            ours_s, peer_s = with_worker(steps), plainly(steps)
        return {"ours_s": ours_s, "peer_s": peer_s}

    serve(args.line, worker.rank, {"pair": pair})
    worker.close()


def cpu_s(batches: Iterable[Any], step: Callable[..., None]) -> float:
    """From the first batch to the last step: opening and ending a pass are not a step's cost."""
    began_s = ended_s = 0.0
    for batch in batches:
        began_s = began_s or process_time()
        step(*batch)
        ended_s = process_time()
    return ended_s - began_s


if __name__ == "__main__":
    main()
