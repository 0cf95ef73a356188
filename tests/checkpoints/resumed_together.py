"""Several workers train, save at every step, and train again from some of what was saved.

``resumed_together.py OUT ALONE STRATEGY...``: each training has a Worker of its own (``worker.load`` is the
only way in), all in the same processes, which cost more than all the training. ``ALONE``: checkpoints
of one worker. Every rank writes what came out, by strategy and checkpoint, to ``OUT/rank-<r>.json``.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import torch
from resumable import build, build_loader, digest
from torch import nn

import paceline
from paceline import checkpoints

BATCHES = 13  # so that the last round of a pass is not of all workers


def train(strategy: str, out: Path, load: Path | None = None, **options: Any) -> dict[str, Any]:
    """Two passes with a save after each step. Where batches are handed out, at a walk: all get some."""
    torch.manual_seed(1 if load is None else 99)
    random.seed(5)
    model, optimizer = build(adam=options.pop("adam", False))
    loader = build_loader(BATCHES)
    steps: list[list[int]] = []
    worker = paceline.Worker(model, optimizer, strategy=strategy, **options)
    worker.scheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100))
    if load is not None:
        worker.load(load)
    for _ in range(2):
        steps.append([])
        for inputs, targets in worker.batches(loader):
            time.sleep(0 if worker._parts.plane.together else 0.01)
            steps[-1].append(int(inputs[0, 0] * 1e6))
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
            if load is None:
                worker.save(out, keep=99)
        torch.rand(1)  # the next pass's order depends on it
    facts = [
        worker.version,
        worker.samples,
        optimizer.param_groups[0]["lr"],
        worker._parts.plane.name,
    ]
    worker.close()
    return {"digest": digest(model, optimizer), "facts": facts, "steps": steps}


def _after_a_pass(saved: list[Path]) -> int:
    """The first that was made at a pass's end, else one in the second pass."""
    inside = [checkpoints.read_body(path)["inside"] for path in saved]
    return inside.index(False) if False in inside else len(saved) // 2 + 1


def main() -> None:
    base, rank = Path(sys.argv[1]), paceline.current_launch().rank
    results: dict[str, Any] = {}
    for number, strategy in enumerate(sys.argv[3:]):
        options = {"adam": number % 2 == 1, "accumulate": 1 + number % 2}
        home = base / strategy.replace(":", "-")
        own = results[strategy] = {"whole": train(strategy, home / "whole", **options)}
        saved = checkpoints.found(home / "whole")
        names = [path.name for path in saved]
        own["saved"] = names
        for place in (1, _after_a_pass(saved)):
            own[names[place]] = train(strategy, home / names[place], saved[place], **options)
    own = results["other"] = {}
    source = checkpoints.found(base / sys.argv[3].replace(":", "-") / "whole")[2]
    own["ssp:3"] = train("ssp:3", base / "other", source)
    own["from one"] = train(
        "sync:server", base / "from one", checkpoints.found(Path(sys.argv[2]))[4]
    )
    (base / f"rank-{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
