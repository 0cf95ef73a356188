"""Did both sides of a series do the same work? Speed that loses updates is worth nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.figures import drift, unequal_losses
from harness.pairing import Series
from harness.sides import Side

MAX_DRIFT = 0.01
"""Of the way the peer's parameters went; rounding alone gives far less, a lost update far more."""
LOSS_WITHIN = 0.05


@dataclass(frozen=True, kw_only=True)
class End:
    """Where a training is: rank 0's parameters as one vector, and the loss of fixed samples."""

    parameters: NDArray[np.float32]
    loss: float


Found = tuple[str, str]
"""A note for the row, and why the check failed (or "")."""


def end_of(side: Side, directory: Path) -> End:
    """Ask a side where it is."""
    path = directory / "snapshot"
    answers = side.ask("snapshot", path=str(path))
    return End(parameters=np.fromfile(path, dtype=np.float32), loss=answers[0]["loss"])


def same_parameters(series: Series, ours: End, peer: End, before: End) -> Found:
    """Joint strategies: every rank's every step is in an update, and the parameters are DDP's."""
    apart = drift(ours.parameters, peer.parameters, before.parameters)
    note = f"parameters {apart:.0e} of their way apart"
    lost = _lost_work(series, updates=series.updates)
    return note, lost or ("" if apart <= MAX_DRIFT else f"{note}, more than {MAX_DRIFT:.0e}")


def same_loss(series: Series, ours: End, peer: End, before: End) -> Found:
    """On-demand strategies: every push is an update of its own; the loss falls as DDP's does."""
    lost = _lost_work(series, updates=series.updates * len(series.our_blocks[0]))
    apart = unequal_losses(ours.loss, peer.loss, before.loss, LOSS_WITHIN)
    return _losses(ours, peer, before), lost or apart


def nothing(series: Series, ours: End, peer: End, before: End) -> Found:
    """Peers that are shown for comparison may end where they like; it is noted."""
    return _losses(ours, peer, before), ""


CHECKS: Mapping[str, Callable[[Series, End, End, End], Found]] = {
    "parameters": same_parameters,
    "loss": same_loss,
    "none": nothing,
}


def _lost_work(series: Series, *, updates: int) -> str:
    """How the counts differ from every worker's every step in one of ``updates`` updates, or ""."""
    ranks = [rank for block in series.our_blocks for rank in block]
    steps, applied = (sum(rank[what] for rank in ranks) for what in ("steps", "applied"))
    version = max(rank["version"] for rank in series.our_blocks[-1])
    expected = series.updates * len(series.our_blocks[0])
    if steps == applied == expected and version == updates:
        return ""
    reasons = sorted({reason for rank in ranks for reason in rank["not_applied"]})
    return (
        f"{steps} steps, {applied} applied, version {version}; expected {expected} steps in "
        f"{updates} updates; {'; '.join(reasons)}"
    )


def _losses(ours: End, peer: End, before: End) -> str:
    return f"loss {ours.loss:.4g}, DDP {peer.loss:.4g}, began at {before.loss:.4g}"
