"""The peer: DistributedDataParallel over gloo, with and without a communication hook of torch's."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from harness.models import TASKS, again_and_again
from harness.serving import Block, Deeds, serve, snapshot
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

Hook = tuple[Any, Callable[..., Any]]


def _power_sgd(rank: int) -> Hook:
    """From the third step on; one bucket, for with several it hangs over gloo (FAULTS of DDP's hook)."""
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
    return state, powerSGD_hook.powerSGD_hook


HOOKS: dict[str, Callable[[], Hook]] = {
    "fp16": lambda: (None, default_hooks.fp16_compress_hook),
    "powersgd:4": lambda: _power_sgd(4),
}
"""The bf16 hook refuses gloo."""
ONE_BUCKET_MB = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--line", required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--hook", choices=HOOKS)
    parser.add_argument("--accumulate", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    task = TASKS[args.task]
    buckets = {"bucket_cap_mb": ONE_BUCKET_MB} if args.hook == "powersgd:4" else {}
    model = DistributedDataParallel(task.build(), gradient_as_bucket_view=True, **buckets)
    if args.hook:
        model.register_comm_hook(*HOOKS[args.hook]())
    optimizer = task.optimizer(model, 0.9)
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    loader = task.loader(DistributedSampler(task.data(), shuffle=False))

    def block(steps: int) -> dict[str, Any]:
        done = Block()
        for number, batch in enumerate(again_and_again(loader, steps * args.accumulate), 1):
            done.batch_is_here()
            inputs, targets = batch
            last = number % args.accumulate == 0
            with nullcontext() if last else model.no_sync():
                loss = task.loss(model(inputs), targets) / args.accumulate
                loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
                done.steps += 1
        return done.ended()

    def reset(momentum: float) -> dict[str, Any]:
        """As new: the initial parameters, an optimizer without a past."""
        nonlocal optimizer
        model.load_state_dict(initial)
        optimizer = task.optimizer(model, momentum)
        return {}

    alone = partial(snapshot, model.module, task, rank)
    deeds: Deeds = {"block": block, "reset": reset, "snapshot": alone}
    serve(args.line, rank, deeds)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
