"""What a replica keeps of its own in a checkpoint, and how all of them begin from one, or alike.

The model in a checkpoint is what exchanges have left. Beside it each rank has its optimizer's state, the
outer momentum (the same on all), and, where only a fragment has met, its own replica: how far it has
moved elsewhere would else be lost. Knows no windows and no pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.strategies import Strategy, fragments_of
from paceline.worker.averaging import OUTER_MOMENTUM, Average
from paceline.worker.joining import Broadcasts, broadcast, share_optimizer
from paceline.worker.optimizer_state import held_by
from paceline.worker.replica_round import Round
from paceline.worker.training import Training


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """``outer``: the momentum to begin with, one for each trained tensor; ``turn``: the fragment that meets
    first. ``values``: this rank's replica, and ``weights`` what each fragment of it was trained on since it
    met; None if it begins where the others do."""

    outer: Sequence[torch.Tensor]
    turn: int
    values: Sequence[torch.Tensor] | None
    weights: Sequence[float]


def begin_alike(training: Training, group: Broadcasts, *, rank: int, fragments: int) -> Start:
    """Everyone has rank 0's parameters, turn and outer momentum. The optimizer's state and the replica are
    each rank's own where they come from a checkpoint. Every rank calls it."""
    broadcast(group, [parameter.data for parameter in training.parameters])
    outer = _taken_momentum(training)
    if not training.version:
        share_optimizer(group, training, root=rank == 0)
    kept = training.replica
    fits = _fits(kept, fragments)
    said = torch.zeros(2, dtype=torch.float64, device=group.device)
    said[0], said[1] = bool(outer), kept["turn"] if fits else 0
    group.broadcast(said)
    known, turn = said.tolist()
    if known:
        outer = outer or [torch.zeros_like(one) for one in training.parameters]
        broadcast(group, outer)
    values = kept["values"] if fits else {}
    return Start(
        outer=outer if known else [],
        turn=int(turn),
        values=[values[one.name] for one in training.trainables] if values else None,
        weights=kept["weights"] if fits else [0.0] * fragments,
    )


def own_state(training: Training, average: Average, now: Round) -> dict[str, Any]:
    """For a checkpoint: the optimizer's state, the outer one's with it, and a replica that is not whole."""
    trainables = training.trainables
    held = held_by(training.optimizer, trainables)
    states = [dict(training.optimizer.state.get(one, {})) for one in held]
    for state, outer in zip(states, average.momentum(), strict=False):
        state[OUTER_MOMENTUM] = outer
    names = [one.name for one in trainables]
    own: dict[str, Any] = {"optimizer": dict(zip(names, states, strict=True))}
    if len(now.weights) > 1:
        values = {} if now.whole else dict(zip(names, average.replica(), strict=True))
        own["replica"] = {"values": values, "weights": now.weights, "turn": now.turn}
    return own


def left_behind(
    kept: Mapping[int, Mapping[str, Any]], strategy: Strategy, *, world_size: int
) -> str:
    """What to say where what ranks had ``kept`` of replicas is not gone on with; "" if all of it is."""
    fragments = fragments_of(strategy)
    lost = [
        rank
        for rank, own in kept.items()
        if own.get("values") and not (rank < world_size and _fits(own, fragments))
    ]
    if not lost:
        return ""
    return (
        f"what rank {', '.join(map(str, lost))} had trained since fragments met is not gone on with: it was "
        "saved in other fragments, or by more workers. Parameters begin where exchanges had left them."
    )


def _fits(kept: Mapping[str, Any], fragments: int) -> bool:
    return bool(kept) and len(kept["weights"]) == fragments


def _taken_momentum(training: Training) -> list[torch.Tensor]:
    """The outer momentum that a checkpoint has put into the optimizer's state, out of it again; or nothing."""
    states = [training.optimizer.state.get(one, {}) for one in training.parameters]
    kept = [state.pop(OUTER_MOMENTUM, None) for state in states]
    return [] if any(one is None for one in kept) else kept
