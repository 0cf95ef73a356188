"""What this worker was told that all workers have to be told alike: by its script, and by its launcher.

Of what is told per launcher only this is left out: who the worker is, where its files are, how it finds
the others (they would not have met), the seed (rank 0's is everybody's), and how often health is looked
at (each looks at its own gradients).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from paceline.launch.context import Launch
from paceline.worker.options import Options
from paceline.worker.training import Training


def said(options: Options, launch: Launch, training: Training) -> dict[str, str]:
    """Name and value, as a difference is to name them. Values in other units or words for the same
    thing are the same text."""
    return {
        "strategy": str(options.strategy),
        "accumulate": str(options.accumulate),
        "global_batch": str(options.global_batch),
        "clip_norm": str(options.clip_norm),
        "batch_norm": options.batch_norm,
        "types": str(options.types),
        "recipe": str(options.recipe),
        "compress": str(options.compress),
        "group_size": str(options.group_size),
        "max_skips": str(options.runtime.max_skips),
        "evict_after_s": str(float(options.runtime.evict_after_s)),
        "--lr-factor": str(float(launch.lr_factor)),
        "--shards": str(launch.shards),
        "--emulate": _contents(launch.emulate),
        "--resume": _beginning(training),
        "replay": "no" if launch.replay is None else "yes",
        "--until": str(launch.until),
    }


def _contents(path: Path | None) -> str:
    """The file may be called otherwise on another host."""
    if path is None:
        return "None"
    return f"a file with checksum {hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"


def _beginning(training: Training) -> str:
    """The checkpoint may lie elsewhere on another host."""
    if not training.version and not training.progress:
        return "from the beginning"
    return f"from version {training.version}, after {training.progress} batches"
