"""``paceline run --resume RUN``: what the command line does not say is as it was in that run.

Reads the checkpoint's plain facts only; knows no tensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline import checkpoints

_AS_IT_WAS = ("strategy", "accumulate", "clip_norm", "evict_after_s")


def continued(options: dict[str, Any]) -> dict[str, Any]:
    """The command line's ``options`` completed by the newest checkpoint of the run ``resume``.

    Number of workers, seed and what was set by that run's command line hold unless said otherwise;
    so does the number of threads, on which bits depend, for as many workers. Raises UsageError if there is no
    checkpoint, CheckpointError if it cannot be read.
    """
    path = checkpoints.newest(Path(options["resume"]))
    body = checkpoints.read_body(path)
    workers = options["workers"] or body["world_size"]
    threads = body["threads"] if workers == body["world_size"] else None
    said = {name: value for name, value in body["overrides"].items() if name in _AS_IT_WAS}
    completed = {name: value for name, value in options.items() if value is not None}
    return {**options, "threads": threads, "seed": body["seed"], **said, **completed,
            "workers": workers, "resume": path}  # fmt: skip
