"""Puts one Worker together: joins the run, checks that all ranks agree, opens the plane.

The order matters: ranks compare what they train before they share anything, and every rank has rank
0's parameters and buffers, and a random stream of its own, before the user goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from paceline.errors import MismatchError, PacelineError, StoppedError
from paceline.gradients.precision.plan import Precision, precision_for
from paceline.launch.context import Launch
from paceline.policy.grouping import check_rounds
from paceline.policy.pairings import PlaneName, strategy_for_norms
from paceline.recorder import Recorder
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.network import Network, over_network
from paceline.strategies import Hybrid, Strategy
from paceline.worker import recipe_parts
from paceline.worker.agreement import Agreement
from paceline.worker.batch_norm import norms_of, put_into_mode, refuse_norms
from paceline.worker.beginning import ANEW, Beginning
from paceline.worker.buffers import untrained
from paceline.worker.circle import Circle, circle_of
from paceline.worker.clock_rates import ClockSampler, sources_for
from paceline.worker.comparing import agreed_seed, compare
from paceline.worker.emulation import Emulation, OwnPace, Pace
from paceline.worker.exits import failure_text
from paceline.worker.guards import Guards
from paceline.worker.journal import Journal
from paceline.worker.manifest import gradient_shapes, trainable
from paceline.worker.options import Options, check_pairings
from paceline.worker.outside import OutsideChanges
from paceline.worker.parts import Parts
from paceline.worker.phases import Phases
from paceline.worker.planes import open_plane, refuse, refuse_shards
from paceline.worker.processor import ProcessorQueue
from paceline.worker.replaying import compared_recorder, is_far
from paceline.worker.said import said
from paceline.worker.scheduling import Schedules
from paceline.worker.seeds import reseed
from paceline.worker.session import Session
from paceline.worker.surroundings import REAL, Surroundings
from paceline.worker.topology import topology
from paceline.worker.training import Training
from paceline.worker.ways import Ways, ways_of


def assemble(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    options: Options,
    launch: Launch,
    *,
    beginning: Beginning = ANEW,
    around: Surroundings = REAL,
) -> tuple[Parts, Session | None]:
    """All parts of a worker, in a group that has agreed on them. ``session`` is None if it is alone.

    Raises UsageError / MismatchError before anything is shared, StoppedErrors when others fail.
    """
    check_pairings(
        options, world_size=launch.world_size, optimizer_name=type(optimizer).__name__,
        collectives=not launch.virtual,
    )  # fmt: skip
    if options.runtime.key is not None:
        launch = replace(launch, key=Path(options.runtime.key).absolute())
    cluster = None if launch.emulate is None else ClusterModel.load(launch.emulate)
    network = None if cluster is None else cluster.network
    strategy = _joining(model, options, network, launch)
    ways = partial(
        ways_of, network, strategy, workers=launch.world_size,
        compression=options.compress, parameters=gradient_shapes(trainable(model, optimizer)),
    )  # fmt: skip
    recipe_parts.prepare(options.recipe, optimizer)
    training = replace(
        _training(model, optimizer, options, launch, beginning),
        clock_s=around.clock_s, serving_s=ways(rank=launch.rank).serving_s, far=is_far(launch),
    )  # fmt: skip
    name = topology(
        strategy, launch.world_size, training.parameters[0].device,
        collectives=not launch.virtual,
    )  # fmt: skip
    refuse(name, training)
    refuse_shards(name, launch.shards, strategy)
    recorder = _recorder(trace_path(options, launch), launch, around.clock_s)
    session = _joined(options, launch, recorder, training.parameters[0].device, around)
    member = _Member(
        options=options, launch=launch, session=session, recorder=recorder, sleep_s=around.sleep_s,
        cluster=cluster, ways=ways,
    )  # fmt: skip
    try:
        beginning.prepare()
        return _agreed(name, training, member), session
    except BaseException as error:
        _leave(session, error)
        raise


def _joined(
    options: Options, launch: Launch, recorder: Recorder, device: torch.device, around: Surroundings
) -> Session | None:
    """The worker's connection to the others, if there are any. Its heartbeats sample clock rates too."""
    if launch.world_size == 1:
        return None
    sources = [] if launch.virtual else sources_for(device)
    return around.join(
        launch,
        evict_after_s=options.runtime.evict_after_s,
        on_beat=ClockSampler(sources, recorder, around.clock_s),
        clock_s=around.clock_s,
    )


def _training(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    options: Options,
    launch: Launch,
    beginning: Beginning,
) -> Training:
    """What is trained and how, as the options and the checkpoint say."""
    trainables = trainable(model, optimizer)
    precision = precision_for(options.types, (one.parameter.dtype for one in trainables))
    return Training(
        model=model,
        optimizer=optimizer,
        trainables=trainables,
        strategy=options.strategy,
        clip_norm=options.clip_norm,
        lr_factor=launch.lr_factor,
        version=beginning.position.version,
        progress=beginning.position.progress,
        precision=_scaled(precision, beginning.loss_scale),
        recipe=options.recipe,
        warm_up=recipe_parts.warm_up(options.recipe, world_size=launch.world_size),
        limit=recipe_parts.limit(options.recipe, beginning.limit),
        compress=options.compress,
        compressed=beginning.compressed,
        replica=beginning.replica,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Member:
    """This worker in its run, before anything is agreed. ``ways(rank=...)``: of the one that pushes."""

    options: Options
    launch: Launch
    session: Session | None
    recorder: Recorder
    sleep_s: Callable[[float], None]
    cluster: ClusterModel | None
    ways: Callable[..., Ways]


def _agreed(name: PlaneName, training: Training, member: _Member) -> Parts:
    """The parts, once all ranks have compared what they train and share rank 0's start."""
    session, launch, options = member.session, member.launch, member.options
    if session is not None:
        compare(session, training, said(options, launch, training) | {"plane": name})
    circle = _circle(training.strategy, member)
    pace = _pace(name, member, circle, training.clock_s)
    timed = not launch.virtual and member.cluster is None  # else its time is not the machine's
    queue = ProcessorQueue() if timed else None
    phases = Phases(pace.now_s, queue)
    if session is not None:
        session.tell_phase(phases.report)
    for parameter in training.parameters:
        parameter.grad = None  # a gradient from before is no part of the first window
    plane = open_plane(name, training, session, circle, collectives=not launch.virtual)
    plane.broadcast(untrained(training.model, training.parameters))
    norms = put_into_mode(norms_of(training.model), options.batch_norm, plane)
    agreement = Agreement(plane, rank=launch.rank)
    seed = agreed_seed(agreement, launch)
    reseed(seed, rank=launch.rank)
    return Parts(
        model=training.model,
        optimizer=training.optimizer,
        trained=training.parameters,
        device=training.parameters[0].device,
        plane=plane,
        agreement=agreement,
        options=options,
        launch=launch,
        seed=seed,
        journal=Journal(
            member.recorder, phases, rank=launch.rank, strategy=options.strategy, queue=queue
        ),
        phases=phases,
        guards=Guards(training.model, training.optimizer),
        outside=OutsideChanges(training, name),
        schedules=Schedules(plane.position().progress),
        pace=pace,
        norms=norms,
        precision=training.precision,
        groups=() if circle is None else circle.groups,
    )


def _joining(
    model: nn.Module, options: Options, network: Network | None, launch: Launch
) -> Strategy:
    """The strategy, with the topology that an emulated ``network`` and the model's batch norm want
    where it leaves a choice. Raises UsageError."""
    layers = norms_of(model)
    refuse_norms(layers, options.batch_norm, world_size=launch.world_size)
    apart = network is not None or launch.several_hosts
    strategy = over_network(options.strategy) if apart else options.strategy
    if not layers or launch.world_size == 1:
        return strategy
    return strategy_for_norms(strategy, options.batch_norm)


def _scaled(precision: Precision, loss_scale: float | None) -> Precision:
    """``precision`` with its dynamic scale where a checkpoint left it."""
    if loss_scale is None or not precision.scale.dynamic:
        return precision
    return replace(precision, scale=replace(precision.scale, value=loss_scale))


def _leave(session: Session | None, error: BaseException) -> None:
    """Construction failed: the others must not wait. A mismatch they have all seen themselves."""
    if session is None:
        return
    if not isinstance(error, StoppedError | MismatchError):
        session.abort(failure_text(error))
    with suppress(PacelineError):  # the reason for leaving is the one to hear of
        session.close("departed")


def trace_path(options: Options, launch: Launch) -> Path | None:
    """Where this worker's trace goes; None if nobody wants one."""
    out = launch.out if launch.out is not None else options.runtime.out
    if out is None:
        return None
    Path(out).mkdir(parents=True, exist_ok=True)
    return Path(out) / f"rank-{launch.rank}.jsonl"


def _recorder(path: Path | None, launch: Launch, clock_s: Callable[[], float]) -> Recorder:
    if launch.replay is not None and path is not None:
        return compared_recorder(launch.replay, path, rank=launch.rank, clock_s=clock_s)
    return Recorder(path, clock_s, role="worker", rank=launch.rank)


def _circle(strategy: Strategy, member: _Member) -> Circle | None:
    """The worker's group, under a strategy that has any: a node of the emulated network is a host."""
    session, launch, size = member.session, member.launch, member.options.group_size
    if session is None or not isinstance(strategy, Hybrid):
        return None
    network = None if member.cluster is None or size is not None else member.cluster.network
    node = 0 if network is None else launch.rank // network.links.per_node
    circle = circle_of(session, size, node=node, collectives=not launch.virtual)
    check_rounds(circle.groups, strategy)
    return circle


def _pace(
    name: PlaneName, member: _Member, circle: Circle | None, clock_s: Callable[[], float]
) -> Pace:
    if member.cluster is None:
        return OwnPace(clock_s)
    rank = member.launch.rank
    return Emulation(
        member.cluster, rank=rank, ways=member.ways(rank=rank if circle is None else circle.ranks[0]),
        collective=name in ("allreduce", "hybrid"), clock_s=clock_s, sleep_s=member.sleep_s,
    )  # fmt: skip
