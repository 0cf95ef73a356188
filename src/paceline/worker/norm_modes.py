"""What ``batch_norm=`` may be, what it cannot be combined with, and what is worth saying about it.

Words only: how layers are changed is :mod:`paceline.worker.batch_norm`'s business. No tensors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from paceline.errors import UsageError, bad_value
from paceline.strategies import Backup, Strategy, Sync, drifts, is_joint

NormMode = Literal["local", "sync", "freeze"]
"""``local``: statistics of each worker's own micro-batches; ``sync``: of all workers' micro-batches
of a moment; ``freeze``: the running statistics, unchanged."""

_WITHOUT = "batch_norm='freeze' or 'local', or nn.GroupNorm, which needs no batch"


def norm_mode(value: Any) -> NormMode:
    """The mode that ``batch_norm=value`` names; None is ``local``. Raises UsageError."""
    if value is None:
        return "local"
    if value in ("local", "sync", "freeze"):
        mode: NormMode = value
        return mode
    raise bad_value("batch_norm", value, "None, 'local', 'sync' or 'freeze'")


def strategy_for_norms(strategy: Strategy, mode: NormMode) -> Strategy:
    """``strategy`` with the topology that synchronised batch norm needs, where it leaves a choice.

    Raises UsageError where workers have no step in common, or where one without a batch waits at the
    server, out of the others' reach.
    """
    if mode != "sync":
        return strategy
    if isinstance(strategy, Sync) and strategy.topology == "auto":
        return replace(strategy, topology="allreduce")
    if isinstance(strategy, Sync) and strategy.topology == "allreduce":
        return strategy
    if is_joint(strategy) and not isinstance(strategy, Backup) and not drifts(strategy):
        raise UsageError(
            f"{strategy} and batch_norm='sync' cannot work together: batch norm needs all workers "
            "within forward and backward, and there one that has no batch waits at the server. Use "
            "strategy='sync:allreduce', which makes the same updates."
        )
    raise UsageError(
        f"{strategy} and batch_norm='sync' cannot work together: workers have no step in common, so "
        f"there is no joint batch to take statistics of. Use {_WITHOUT}; or strategy='sync'."
    )


def accumulation_notice(mode: NormMode, *, workers: int, window: int, batch: float) -> str:
    """What accumulation does not do for batch norm, in one line; "" if there is nothing to say.

    ``batch``: samples of a micro-batch; ``window``: micro-batches per update of each worker.
    """
    if mode == "freeze" or window == 1:
        return ""
    update = f"{workers} x {window} x {batch:g} = {workers * window * batch:g} samples"
    joined = mode == "sync" and workers > 1
    seen = f"{workers} x {batch:g} = {workers * batch:g}" if joined else f"{batch:g}"
    return (
        f"batch norm takes its statistics of {seen} samples, while an update has {update} (workers x "
        "accumulate x batch): accumulation does not make its batch larger. nn.GroupNorm and "
        "batch_norm='freeze' do not depend on the batch."
    )
