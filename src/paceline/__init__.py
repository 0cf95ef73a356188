"""The synchronisation strategy of data-parallel PyTorch training as a one-word choice.

The names below are all there is to the public interface. They are loaded when first used, so that
``import paceline`` costs nothing and loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.errors import (
        CheckpointError,
        ConsistencyError,
        EvictedError,
        MismatchError,
        NonFiniteError,
        PacelineError,
        PeerFailedError,
        PeerLostError,
        ServerLostError,
        StoppedError,
        UsageError,
    )
    from paceline.launch.context import Launch, current_launch
    from paceline.recipes import Plain, Stable
    from paceline.strategies import SSP, Async, Backup, Sync, parse_strategy
    from paceline.worker.options import Runtime
    from paceline.worker.results import StepResult
    from paceline.worker.worker import Worker

__version__ = "0.1.0"

_HOMES = {
    "Worker": "paceline.worker.worker",
    "Runtime": "paceline.worker.options",
    "StepResult": "paceline.worker.results",
    "Launch": "paceline.launch.context",
    "current_launch": "paceline.launch.context",
    "Sync": "paceline.strategies",
    "Backup": "paceline.strategies",
    "SSP": "paceline.strategies",
    "Async": "paceline.strategies",
    "parse_strategy": "paceline.strategies",
    "Plain": "paceline.recipes",
    "Stable": "paceline.recipes",
    "PacelineError": "paceline.errors",
    "UsageError": "paceline.errors",
    "ConsistencyError": "paceline.errors",
    "NonFiniteError": "paceline.errors",
    "MismatchError": "paceline.errors",
    "StoppedError": "paceline.errors",
    "PeerLostError": "paceline.errors",
    "PeerFailedError": "paceline.errors",
    "ServerLostError": "paceline.errors",
    "EvictedError": "paceline.errors",
    "CheckpointError": "paceline.errors",
}

__all__ = [
    "SSP",
    "Async",
    "Backup",
    "CheckpointError",
    "ConsistencyError",
    "EvictedError",
    "Launch",
    "MismatchError",
    "NonFiniteError",
    "PacelineError",
    "PeerFailedError",
    "PeerLostError",
    "Plain",
    "Runtime",
    "ServerLostError",
    "Stable",
    "StepResult",
    "StoppedError",
    "Sync",
    "UsageError",
    "Worker",
    "current_launch",
    "parse_strategy",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
