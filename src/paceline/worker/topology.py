"""Which plane joins the workers: what the strategy's word leaves open is decided here, by rule.

Knows where the model lies, the operating system and whether collectives are to be had; nothing is timed.
"""

from __future__ import annotations

import sys

import torch

from paceline.errors import UsageError
from paceline.policy.pairings import PlaneName, plane_of
from paceline.strategies import Strategy, Sync


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
    name = plane_of(strategy, world_size, collectives=collectives)
    if name == "local":
        return name
    if platform == "win32":
        raise UsageError(
            "Several workers need Linux or macOS; on Windows use WSL 2, or one worker."
        )
    shares_memory = platform == "linux"
    if name in ("server", "hybrid") and not shares_memory and not _is_joined_anyway(strategy):
        raise UsageError(f"strategy={str(strategy)!r} needs Linux (memfd). Use 'sync:allreduce'.")
    if name is None:
        return "server" if device.type == "cpu" and shares_memory else "allreduce"
    return name


def _is_joined_anyway(strategy: Strategy) -> bool:
    """Whether the server only stands in for all-reduce, as where workers share a process."""
    return isinstance(strategy, Sync) and strategy.topology != "server"
