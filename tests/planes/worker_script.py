"""One worker of a crew: reads a cell (a JSON line) from stdin, runs it, answers with a JSON line."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from typing import Any

import torch

from paceline.launch.context import Launch
from paceline.strategies import parse_strategy
from paceline.worker.manifest import trainable
from paceline.worker.plane import Contribution, PassPlan, Plane, Window
from paceline.worker.planes import open_plane
from paceline.worker.session import Session
from paceline.worker.training import Training
from planes.toy import build, gradient_step, hexed, parameters_of

Answer = dict[str, Any]


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        cell = json.loads(line)
        try:
            answer = run(cell)
        except Exception as error:
            answer = {
                "error": type(error).__name__,
                "text": str(error),
                "trace": traceback.format_exc(),
            }
        print(json.dumps(answer), flush=True)


def run(cell: Answer) -> Answer:
    launch = Launch(rank=cell["rank"], world_size=cell["world_size"], server=cell["server"])
    session = Session.connect(
        launch, evict_after_s=cell.get("evict_after_s", 10.0), on_beat=lambda: None
    )
    model, optimizer = build(cell["optimizer"], seed=cell["rank"])
    training = Training(
        model=model,
        optimizer=optimizer,
        trainables=trainable(model, optimizer),
        strategy=parse_strategy(cell["strategy"]),
        clip_norm=cell.get("clip_norm"),
        lr_factor=cell.get("lr_factor", 1.0),
    )
    plane = open_plane(cell["plane"], training, session)
    answer = train(cell, plane, model, session)
    plane.close("finished")
    state = optimizer.state_dict()["state"]
    return {
        **answer,
        "parameters": {name: hexed(value) for name, value in parameters_of(model).items()},
        "state": {str(place): sorted(entry) for place, entry in state.items()},
    }


def train(cell: Answer, plane: Plane, model: torch.nn.Module, session: Session) -> Answer:
    plane.open_pass(
        PassPlan(
            pass_id=0,
            total=cell.get("announced", cell["total"]),
            window=cell["window"],
            depth=2 * cell["window"],
            weight=cell["unit"] * cell["window"],
            unit=cell["unit"],
        )
    )
    leased, outcomes = plane.leases(), []
    while (window := plane.next_window()) is not None:
        leased += plane.leases()
        misbehave(cell, len(outcomes), session)
        if len(outcomes) == cell.get("leaves_at", {}).get(str(cell["rank"]), -1):
            plane.end_pass_early()
            cell["leaves_at"] = {}
            contribution = Contribution(weight=0.0, unit=cell["unit"])
        else:
            contribution = compute(cell, plane, model, window)
        outcomes.append(plane.exchange(contribution))
    position = plane.position()
    return {
        "version": position.version,
        "clock": position.clock,
        "progress": position.progress,
        "leased": leased,
        "applied": [outcome.applied for outcome in outcomes],
        "reasons": [outcome.reason for outcome in outcomes],
        "lags": [outcome.lag for outcome in outcomes],
        "norms": [outcome.norm for outcome in outcomes],
        "sent_bytes": [outcome.sent_bytes for outcome in outcomes],
        "received_bytes": [outcome.received_bytes for outcome in outcomes],
    }


def compute(cell: Answer, plane: Plane, model: torch.nn.Module, window: Window) -> Contribution:
    weight, unit = 0.0, window.unit
    batches = [batch for batch in window.batches if batch < cell["total"]]
    for number, batch in enumerate(batches):
        plane.before_backward(last=number == len(window.batches) - 1)
        spoiled = [cell["rank"], batch] in cell.get("spoiled", [])
        weight, unit = gradient_step(model, batch, weight, unit, spoiled=spoiled)
    ended = len(batches) < len(window.batches)
    return Contribution(
        weight=weight,
        unit=unit or cell["unit"],
        total=cell["total"] if ended else None,
        stop=[cell["rank"], window.clock] in cell.get("stops", []),
    )


def misbehave(cell: Answer, window: int, session: Session) -> None:
    """What this cell wants this rank to do at the start of its second window.

    Who sleeps says so by a file at ``asleep``, for which who raises waits.
    """
    how = cell.get("acts", {}).get(str(cell["rank"]))
    if how is None or window != 1:
        return
    if how == "raise":
        while "asleep" in cell and not os.path.exists(cell["asleep"]):
            time.sleep(0.01)
        session.abort("ZeroDivisionError: the loss was divided by zero")
        raise ZeroDivisionError("the loss was divided by zero")
    if how == "sleep":
        open(cell["asleep"], "w").close()
        time.sleep(60)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[how])


if __name__ == "__main__":
    main()
