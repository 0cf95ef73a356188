"""``paceline run --resume RUN``: what the command line does not say is as it was in that run.

Reads the checkpoint's plain facts only; knows no tensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline import checkpoints
from paceline.errors import UsageError
from paceline.launch.hosts import on_each
from paceline.runs import read_summary

_AS_IT_WAS = (
    "strategy",
    "accumulate",
    "clip_norm",
    "precision",
    "batch_norm",
    "evict_after_s",
    "recipe",
    "compress",
    "group_size",
)


def continued(options: dict[str, Any]) -> dict[str, Any]:
    """The command line's ``options`` completed by the newest checkpoint of the run ``resume``.

    Number of workers, seed and what was set by that run's command line hold unless said otherwise;
    so does the number of threads, on which bits depend, for as many workers. Raises UsageError if there is no
    checkpoint, CheckpointError if it cannot be read.
    """
    run = Path(options["resume"])
    path = checkpoints.newest(run)
    if options["script"] is None:
        options = {**options, **_script_of(run, path)}
    body = checkpoints.read_body(path)
    hosts = options.get("nnodes") or 1
    workers = options["workers"] or on_each(hosts, body["world_size"], str(run))
    threads = body["threads"] if workers * hosts == body["world_size"] else None
    said = {name: value for name, value in body["overrides"].items() if name in _AS_IT_WAS}
    completed = {name: value for name, value in options.items() if value is not None}
    return {**options, "threads": threads, "seed": body["seed"], "lr_factor": body["lr_factor"],
            **said, **completed, "workers": workers, "resume": path}  # fmt: skip


def _script_of(*places: Path) -> dict[str, Any]:
    """The script and its arguments as the run at one of ``places``, or around it, was started."""
    for place in places:
        for directory in (place, *place.resolve().parents[:2]):
            summary, _ = read_summary(directory / "run.json")
            if request := summary.get("request"):
                return {"script": Path(request["script"]), "args": tuple(request["args"])}
    raise UsageError(
        f"{places[0]}: no run.json that can be read there says which script it was. Give SCRIPT and ARGS."
    )
