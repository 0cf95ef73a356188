"""How ranks that meet in collectives begin alike: one group, rank 0's tensors, rank 0's optimizer.

Knows no plane: what is then done in the group is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from paceline.launch.rendezvous import process_group_store
from paceline.transport.collective import Group
from paceline.worker.optimizer_state import dump_state, load_state
from paceline.worker.packing import pack, unpack
from paceline.worker.session import Session
from paceline.worker.training import Training


class Broadcasts(Protocol):
    """What gives everyone rank 0's: :class:`paceline.transport.collective.Group`."""

    device: torch.device

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Replace ``tensor`` by rank 0's."""


def join(session: Session, device: torch.device) -> Group:
    """The process group of all workers of ``session``, each of which has to call this."""
    return Group(
        process_group_store(
            session.rendezvous, session.rank, lambda said: session.gather("process-group", said)
        ),
        rank=session.rank,
        world_size=session.world_size,
        device=device,
        waiter=session,
    )


def broadcast(group: Broadcasts, tensors: Sequence[torch.Tensor]) -> None:
    """Overwrite ``tensors``, of whatever types, with rank 0's."""
    if tensors:
        data = pack(tensors).to(group.device)
        group.broadcast(data)
        unpack(data, tensors)


def share_optimizer(group: Broadcasts, training: Training, *, root: bool) -> None:
    """Every rank's optimizer begins with the state of the ``root``, rank 0: it may have been trained."""
    mine = dump_state(training.optimizer, training.trainables) if root else None
    known = torch.tensor([float(len(mine or b""))], dtype=torch.float64, device=group.device)
    group.broadcast(known)
    data = torch.zeros(int(known.item()), dtype=torch.uint8, device=group.device)
    if mine is not None:
        data.copy_(torch.frombuffer(bytearray(mine), dtype=torch.uint8))
    if len(data):
        group.broadcast(data)
        load_state(training.optimizer, training.trainables, bytes(data.cpu().numpy()))
    else:
        training.optimizer.state.clear()
