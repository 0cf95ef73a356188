"""Opening the plane that a strategy and a topology ask for, after refusing what it cannot train."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from paceline.compression import WORDS, Own
from paceline.errors import UsageError
from paceline.strategies import outer_of
from paceline.worker.circle import Circle
from paceline.worker.collective_plane import CollectivePlane
from paceline.worker.gathering import Gathering
from paceline.worker.hybrid_plane import HybridPlane
from paceline.worker.joining import join
from paceline.worker.local_plane import LocalPlane
from paceline.worker.manifest import refuse_for_group, refuse_for_server
from paceline.worker.plane import Plane
from paceline.worker.pulled import refuse_pull
from paceline.worker.replica_plane import ReplicaPlane
from paceline.worker.server_plane import ServerPlane
from paceline.worker.session import Session
from paceline.worker.training import Training

PlaneName = Literal["local", "allreduce", "server", "replicas", "hybrid"]


def refuse(name: PlaneName, training: Training) -> None:
    """Raises UsageError, with the remedy, for what the plane ``name`` cannot train."""
    if name != "local":
        refuse_for_group(training.model, training.trainables)
    if name in ("server", "hybrid"):
        refuse_for_server(training.optimizer, training.trainables)
        _refuse_narrow_wire(
            training, "on the server plane gradients cross no wire, or (between hosts) as they are"
        )
        _refuse_own_codec(training)
    if name == "replicas":
        _refuse_narrow_wire(training, "no gradients cross the wire, but parameters")
        _refuse_compression(
            training, "no gradients travel that could be compressed, but parameters, now and then",
            "Leave compress out, or meet less often: a larger H",
        )  # fmt: skip
    refuse_pull(name, training)
    if training.compress is not None and training.precision.reduce is not None:
        raise UsageError(
            f"compress={str(training.compress)!r} and reduce_dtype cannot work together: both say what "
            "gradients are made of on their way. Leave one of them out."
        )


def open_plane(
    name: PlaneName,
    training: Training,
    session: Session | None,
    circle: Circle | None = None,
    *,
    collectives: bool = True,
) -> Plane:
    """The plane, with rank 0's trainable parameters in the model. ``session``: None if local;
    ``circle``: the worker's group, if it is to be in one; ``collectives``: whether torch has them here
    (workers have processes of their own).

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
    if circle is not None and circle.size > 1:
        return HybridPlane(session, training, circle)
    if circle is not None:
        training = replace(training, strategy=outer_of(training.strategy))
        return ServerPlane(session, training, groups=circle.groups)
    return ServerPlane(session, training)


def _refuse_narrow_wire(training: Training, why: str) -> None:
    if training.precision.reduce is not None:
        raise UsageError(
            f"reduce_dtype (here {training.precision.reduce}) and {training.strategy} cannot work "
            f"together: {why}. Leave reduce_dtype out, or use strategy='sync:allreduce'."
        )


def _refuse_compression(training: Training, why: str, remedy: str) -> None:
    if training.compress is not None:
        raise UsageError(
            f"compress={str(training.compress)!r} and {training.strategy} cannot work together: {why}. "
            f"{remedy}."
        )


def _refuse_own_codec(training: Training) -> None:
    if training.compress is not None and isinstance(training.compress.method, Own):
        raise UsageError(
            f"compress={training.compress} and {training.strategy} cannot work together: the server is a "
            f"process of its own, which has no code of yours to decode with. Use {WORDS}."
        )
