"""Opening the plane that a strategy and a topology ask for, after refusing what it cannot train."""

from __future__ import annotations

from typing import Literal

from paceline.errors import UsageError
from paceline.worker.collective_plane import CollectivePlane
from paceline.worker.gathering import Gathering
from paceline.worker.joining import join
from paceline.worker.local_plane import LocalPlane
from paceline.worker.manifest import refuse_for_group, refuse_for_server
from paceline.worker.plane import Plane
from paceline.worker.replica_plane import ReplicaPlane
from paceline.worker.server_plane import ServerPlane
from paceline.worker.session import Session
from paceline.worker.training import Training

PlaneName = Literal["local", "allreduce", "server", "replicas"]


def refuse(name: PlaneName, training: Training) -> None:
    """Raises UsageError, with the remedy, for what the plane ``name`` cannot train."""
    if name != "local":
        refuse_for_group(training.model, training.trainables)
    if name == "server":
        refuse_for_server(training.optimizer, training.trainables)
        _refuse_narrow_wire(training, "on the server plane of one host gradients cross no wire")
    if name == "replicas":
        _refuse_narrow_wire(training, "no gradients cross the wire, but parameters")


def open_plane(
    name: PlaneName, training: Training, session: Session | None, *, collectives: bool = True
) -> Plane:
    """The plane, with rank 0's trainable parameters in the model. ``session``: None if local;
    ``collectives``: whether torch has them here (workers have processes of their own).

    Every rank has to call it. Raises UsageError as :func:`refuse` does, and StoppedErrors.
    """
    refuse(name, training)
    if session is None:
        return LocalPlane(training)
    if name == "allreduce":
        return CollectivePlane(session, training)
    if name == "replicas":
        device = training.parameters[0].device
        group = join(session, device) if collectives else Gathering(session)
        return ReplicaPlane(session, training, group)
    return ServerPlane(session, training)


def _refuse_narrow_wire(training: Training, why: str) -> None:
    if training.precision.reduce is not None:
        raise UsageError(
            f"reduce_dtype (here {training.precision.reduce}) and {training.strategy} cannot work "
            f"together: {why}. Leave reduce_dtype out, or use strategy='sync:allreduce'."
        )
