"""Which plane joins the workers: what the strategy's word leaves open is decided here, by rule.

Knows where the model lies, the operating system and whether collectives are to be had; nothing is timed.
"""

from __future__ import annotations

import sys

import torch

from paceline.errors import UsageError
from paceline.strategies import Hybrid, Strategy, Sync, drifts
from paceline.worker.planes import PlaneName


def topology(
    strategy: Strategy,
    world_size: int,
    device: torch.device,
    platform: str = sys.platform,
    *,
    collectives: bool = True,
) -> PlaneName:
    """Which plane joins the workers; where they are on several hosts ``strategy`` says so by now.
    Without ``collectives`` (several workers in one process) the server does what all-reduce would.

    Raises UsageError where the operating system lacks what the plane needs.
    """
    if world_size == 1:
        return "local"
    if platform == "win32":
        raise UsageError(
            "Several workers need Linux or macOS; on Windows use WSL 2, or one worker."
        )
    if drifts(strategy):
        return "replicas"
    shares_memory = platform == "linux"
    if not isinstance(strategy, Sync) or strategy.topology == "server":
        if not shares_memory:
            raise UsageError(
                f"strategy={str(strategy)!r} needs Linux (memfd). Use 'sync:allreduce'."
            )
        return "hybrid" if isinstance(strategy, Hybrid) else "server"
    if not collectives:
        return "server"
    if strategy.topology == "auto" and device.type == "cpu" and shares_memory:
        return "server"
    return "allreduce"
