"""Trainings with batch norm on real workers; run by test_batch_norm_runs.py: ``script.py OUT``.

Each writes what a rank saw to ``OUT/<name>-rank<r>.json`` and its closed model to ``.pt``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from norm_setting import SIZES, WITH_ONES, batches, loss_of, net, sgd

import paceline

RANK = paceline.current_launch().rank


def joined(mode: str, strategy: str, name: str, sizes: tuple[int, ...] = SIZES) -> None:
    """Two passes over uneven batches; the last round leaves ranks without one."""
    model = net()
    with paceline.Worker(model, sgd(model), strategy=strategy, batch_norm=mode) as worker:
        for _ in range(2):
            for inputs, targets in worker.batches(batches(sizes)):
                worker.step(loss_of(worker(inputs), targets))
        figures = evaluated(worker)
    write(name, model, {**figures, "topology": worker._parts.plane.name})


def wayward(name: str) -> None:
    """Ranks skip batches before and after the forward, forward twice, evaluate alone, break off, run
    out of data."""
    model = net()
    with paceline.Worker(model, sgd(model), batch_norm="sync", accumulate=2) as worker:
        for number, (inputs, targets) in enumerate(worker.batches(batches())):
            if number == 0 and RANK == 1:
                continue
            outputs = worker(inputs)
            if number == 1 and RANK == 2:
                continue
            if number == 2 and RANK == 0:
                outputs = outputs + worker(inputs)
                with worker.evaluate():  # alone, amid the others' window
                    worker(inputs)
            worker.step(loss_of(outputs, targets))
            if number == 2:
                model(inputs)  # beside the loop's windows, for all that the worker knows
        for number, (inputs, targets) in enumerate(worker.batches(batches(), steps=5)):
            if number == 3 and RANK == 1:
                break
            worker.step(loss_of(worker(inputs), targets))
        own = batches()[: 3 + 2 * RANK]
        for inputs, targets in worker.batches(own, split=False):
            worker.step(loss_of(worker(inputs), targets))
        figures = evaluated(worker)
    write(name, model, figures)


def evaluated(worker: paceline.Worker) -> dict[str, Any]:
    """The mean loss over all data, each rank computing its share."""
    total, count = 0.0, 0
    with worker.evaluate():
        for inputs, targets in worker.batches(batches()):
            total += float(loss_of(worker(inputs), targets)) * len(inputs)
            count += len(inputs)
        return {"loss": worker.mean(total / max(count, 1), count).hex(), "share": count}


def write(name: str, model: torch.nn.Module, figures: dict[str, Any]) -> None:
    out = Path(sys.argv[1]) / f"{name}-rank{RANK}"
    torch.save(model.state_dict(), out.with_suffix(".pt"))
    out.with_suffix(".json").write_text(json.dumps(figures))


joined("sync", "sync", "sync", WITH_ONES)
wayward("wayward")
for strategy in ("sync:allreduce", "sync:server", "async", "ssp:3"):
    joined("local", strategy, f"local-{strategy}".replace(":", "_"))
joined("freeze", "ssp:3", "freeze")
