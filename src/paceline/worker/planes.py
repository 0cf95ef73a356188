"""Opening the plane that a strategy and a topology ask for, after refusing what it cannot train."""

from __future__ import annotations

from dataclasses import replace

from paceline.errors import UsageError
from paceline.policy.pairings import PlaneName, refuse_on
from paceline.strategies import Strategy, outer_of
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


def refuse(name: PlaneName, training: Training) -> None:
    """Raises UsageError, with the remedy, for what the plane ``name`` cannot train."""
    if name != "local":
        refuse_for_group(training.model, training.trainables)
        _refuse_complex(training)
    if name in ("server", "hybrid"):
        refuse_for_server(training.optimizer, training.trainables)
    narrow = training.precision.reduce
    refuse_on(
        name, training.strategy, compress=training.compress,
        narrow=None if narrow is None else str(narrow).removeprefix("torch."),
    )  # fmt: skip
    refuse_pull(name, training)


def refuse_shards(name: PlaneName, shards: int, strategy: Strategy) -> None:
    """Raises UsageError where parameters are to be divided that no server holds."""
    if shards > 1 and name != "server":
        raise UsageError(
            f"--shards={shards} and {strategy} cannot work together: only a server's parameters are divided, "
            "and that of groups is not yet. Say sync:server, ssp:3 or async, or leave --shards out."
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


def _refuse_complex(training: Training) -> None:
    """What is done to gradients on their way is done to real numbers."""
    names = [one.name for one in training.trainables if one.parameter.is_complex()]
    if not names:
        return
    for field, given in (
        ("compress", training.compress),
        ("reduce_dtype", training.precision.reduce),
        ("accumulate_dtype", training.precision.accumulate),
    ):
        if given is not None:
            raise UsageError(
                f"{field}={given} and complex parameters ({names[0]}) cannot work together: it is for real "
                f"numbers. Leave {field} out, or keep the parameter as torch.view_as_real has it."
            )
