"""From a checkpoint to a worker that goes on from it: what is read, agreed, and said.

Model and optimizer are given their state before the plane is opened: so the first rank's goes to all,
as at any start. Where in the loop the script then is, :mod:`paceline.worker.catching_up` knows.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import nn

from paceline.errors import UsageError
from paceline.launch.context import Launch
from paceline.strategies import drifts
from paceline.worker import recipe_parts
from paceline.worker.agreement import require_equal
from paceline.worker.beginning import ANEW, Beginning
from paceline.worker.catching_up import CatchingUp
from paceline.worker.compression_words import dropped
from paceline.worker.loop import Loop
from paceline.worker.options import Options
from paceline.worker.parts import Parts
from paceline.worker.plane import Position
from paceline.worker.replica_state import left_behind
from paceline.worker.snapshot import Checkpoint, check_fit, put_groups, put_into, read
from paceline.worker.streams import LoaderGenerators

_SAME = "Every rank must call worker.load with the same checkpoint."


def asked_by(launch: Launch) -> Checkpoint | None:
    """The checkpoint that the launcher says to go on from. Raises CheckpointError if it is damaged."""
    return None if launch.resume is None else read(launch.resume)


def agreed(path: Path | str, parts: Parts) -> Checkpoint:
    """The checkpoint at ``path``, the same for all ranks; a relative path as in ``worker.save``.

    Raises UsageError, MismatchError, CheckpointError.
    """
    out = parts.launch.out if parts.launch.out is not None else parts.options.runtime.out
    inside_run = Path(path) if out is None else Path(out) / path
    checkpoint = read(inside_run if inside_run.exists() else Path(path))
    check_fit(checkpoint, parts.model, parts.optimizer)
    facts = {"checkpoint": str(checkpoint.path), "version": checkpoint.body["version"]}
    everyone = parts.agreement.gather("worker.load", **facts)
    require_equal(everyone, dict.fromkeys(facts, _SAME))
    return checkpoint


def beginning_from(
    checkpoint: Checkpoint | None,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    options: Options,
    launch: Launch,
) -> Beginning:
    """Where the group begins, if it goes on from ``checkpoint``.

    Clocks begin at 0 always: only their differences mean anything. What each rank had of its own is
    its again if the strategy keeps such things apart, else the first rank's is everybody's.
    """
    if checkpoint is None:
        return ANEW
    body = checkpoint.body
    apart = recipe_parts.refines(options.recipe, options.strategy) or drifts(options.strategy)
    whose = launch.rank if apart else 0
    return Beginning(
        position=Position(version=body["version"], progress=body["progress"]),
        loss_scale=body["loss_scale"],
        limit=checkpoint.limit(whose),
        compressed=checkpoint.compressed(launch.rank, launch.world_size),
        prepare=partial(put_into, checkpoint, model, optimizer, whose),
        replica=checkpoint.replica(launch.rank),
    )


def loop_from(checkpoint: Checkpoint | None, parts: Parts, *, catch_up: bool) -> Loop:
    """The loop of a worker that goes on from ``checkpoint`` (None: it begins).

    ``catch_up``: the script runs from its beginning. If not, it is in the midst of its own passes,
    and is given the state alone.
    """
    if checkpoint is None:
        return Loop(parts)
    rank, size = parts.launch.rank, parts.launch.world_size
    catching_up = CatchingUp(checkpoint, rank=rank, world_size=size)
    parts.schedules.expect(
        checkpoint.schedulers,
        checkpoint.body["scheduled"],
        lambda: put_groups(checkpoint, parts.optimizer),
    )
    _say(checkpoint, parts)
    if not catch_up:
        catching_up.arrive(parts.model, LoaderGenerators(), parts.device, parts.seed)
    return Loop(parts, catching_up, checkpoint.body["samples"])


def refuse_inside(loop: Loop) -> None:
    """Raises UsageError where nothing can be loaded."""
    if loop.inside:
        raise UsageError(
            "worker.load() was called inside the loop over worker.batches(...). Call it before the "
            "first loop (then the script catches up with its checkpoint), or between two."
        )


def _say(checkpoint: Checkpoint, parts: Parts) -> None:
    body = checkpoint.body
    where = f"after {body['passes']} {'pass' if body['passes'] == 1 else 'passes'}"
    if body["inside"]:
        counts = [left.count for left in checkpoint.left.values()]
        known = [str(count) for count in counts if count is not None]
        left = f", {' + '.join(known)} of its batches left" if known else ""
        where = f"in pass {body['passes'] + 1}{left}"
    changed = [
        f"{name} was {body[name]}"
        for name, now in (
            ("world_size", parts.launch.world_size),
            ("strategy", str(parts.options.strategy)),
            ("threads", torch.get_num_threads()),
            ("recipe", str(parts.options.recipe)),
            ("compress", str(parts.options.compress)),
        )
        if body.get(name, now) != now
    ]
    differs = f" ({', '.join(changed)})" if changed else ""
    parts.journal.note(
        "resumed", f"going on from version {body['version']} of {checkpoint.path}, {where}{differs}"
    )
    launch = parts.launch
    kept = checkpoint.compressed(launch.rank, launch.world_size)["residuals"]
    if kept and not parts.plane.own_state().get("residuals"):
        parts.journal.note("notice", dropped(parts.options.compress, launch.world_size))
    replicas = {rank: checkpoint.replica(rank) for rank in checkpoint.ranks}
    if said := left_behind(replicas, parts.options.strategy, world_size=launch.world_size):
        parts.journal.note("notice", said)
