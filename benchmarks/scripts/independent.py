"""The physical floor: processes that exchange nothing, and how fast memory is for all at once."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch
from harness.models import TASKS, again_and_again
from harness.serving import Block, serve

PASS_FLOATS = 25_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--line", required=True)
    parser.add_argument("--task", required=True)
    args = parser.parse_args()

    torch.set_num_threads(1)
    task = TASKS[args.task]
    model = task.build()
    loader = task.loader()
    one, other = torch.ones(PASS_FLOATS), torch.ones(PASS_FLOATS)

    def block(steps: int) -> dict[str, Any]:
        """Forward and backward only; the gradients are kept and written again."""
        done = Block()
        for inputs, targets in again_and_again(loader, steps):
            done.batch_is_here()
            task.loss(model(inputs), targets).backward()
            for parameter in model.parameters():
                parameter.grad = None
            done.steps += 1
        return done.ended()

    def bandwidth(passes: int) -> dict[str, Any]:
        """Bytes a second of this process: each pass reads two vectors and writes one."""
        began_s = time.monotonic()
        for _ in range(passes):
            one.add_(other)
        took_s = time.monotonic() - began_s
        return {"bytes_per_s": 3 * one.nbytes * passes / took_s}

    serve(args.line, int(os.environ["RANK"]), {"block": block, "bandwidth": bandwidth})


if __name__ == "__main__":
    main()
