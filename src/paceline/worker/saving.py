"""When a checkpoint is taken, of what, and by whom: one worker writes, with what the others hand in.

Inside the training loop nobody waits for anybody. Where every live worker is in every round, the last
one that calls ``save`` at this point writes: until it goes on, nothing can change. Elsewhere the first
one writes what the coordinator's cut gives it, while the others go on. Outside the loop all meet.
Knows no files (:mod:`paceline.checkpoints`) and no formats (:mod:`paceline.worker.snapshot`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import torch

import paceline
from paceline import checkpoints
from paceline.errors import CheckpointError, UsageError, bad_value
from paceline.events import Left
from paceline.replay.recorded import below
from paceline.strategies import Strategy, windows_apart
from paceline.worker.manifest import hyperparameters
from paceline.worker.order import Order
from paceline.worker.parts import Parts
from paceline.worker.plane import Cut
from paceline.worker.snapshot import Snapshot, pack_part, write_files
from paceline.worker.streams import LoaderGenerators, capture

_CALL = "worker.save"
_LAST = 10**9
"""A number that comes after those of all checkpoints that a script asks for in a pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What the user asked for: ``keep`` checkpoints under ``directory``."""

    directory: Path
    keep: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where this worker's loop is.

    ``passes``: ended; ``inside``: of the next one some windows are done. ``calls``: of ``save``
    since the last pass ended. ``samples``: of all workers, by what this one knows of ``progress``,
    batches of ``unit`` samples; ``pass_samples``: of this one in this pass. ``end``: batches that the
    pass has; ``lefts``: what was left of it when this run went on with it, by owner (its batches are
    numbered among those). ``began``: the random streams when the pass began; ``position``: batches read
    of a stream.
    """

    passes: int
    inside: bool
    calls: int
    samples: float
    progress: int
    unit: float = 0.0
    pass_samples: float = 0.0
    window: int | None = None
    order: Order | None = None
    lefts: Mapping[int, Left] = field(default_factory=dict)
    end: int = 0
    began: dict[str, Any] | None = None
    position: int | None = None

    def samples_at(self, progress: int) -> float:
        """Of all workers at ``progress``: others may have got on since this one last heard of them."""
        return self.samples + self.unit * (progress - self.progress)


class Saver:
    """Takes this worker's part in the checkpoints of a run."""

    def __init__(self, parts: Parts, loaders: LoaderGenerators) -> None:
        self._parts = parts
        self._loaders = loaders
        self.number = 0
        """Checkpoints asked for in this pass."""
        self.wish: Wish | None = None
        """The last of them."""
        self._missed = False

    def begin_pass(self) -> None:
        """Another pass begins."""
        self.number, self.wish, self._missed = 0, None, False

    def wish_for(self, path: Path | str, keep: int) -> Wish:
        """What ``worker.save(path, keep)`` means. Raises UsageError."""
        refuse_never(self._parts.options.strategy, self._parts.launch.world_size)
        if not isinstance(keep, int) or isinstance(keep, bool) or keep < 1:
            raise bad_value("keep", keep, "a whole number >= 1")
        launch, directory = self._parts.launch, (self._home() or Path()) / path
        if launch.replay is not None and launch.out is not None:
            directory = below(directory, launch.replay, launch.out)
        return Wish(directory=directory, keep=keep)

    def asked(self) -> dict[str, Any]:
        """What to compare with the other ranks at a pass's end."""
        wish = self.wish
        directory, keep = ("", 1) if wish is None else (str(wish.directory), wish.keep)
        return {
            "saves": self.number, "missed": self._missed, "directory": directory, "keep": keep,
        }  # fmt: skip

    def missed(self) -> None:
        """A checkpoint was asked for at a point that this worker went past alone."""
        self._missed = True

    def inside(self, wish: Wish, standing: Standing) -> None:
        """A checkpoint between two windows. Raises CheckpointError on the worker that writes it."""
        plane = self._parts.plane
        self.number, self.wish = self.number + 1, wish
        part = self._part(standing)
        if (everyones := plane.hand_in(standing.passes, self.number, part)) is not None:
            with self._saving():
                self._write(wish, standing, everyones, inside=True)

    def reached(self, wish: Wish, standing: Standing) -> None:
        """A checkpoint of the version at which a replay stops, by one of those who made it."""
        parts = self._parts.plane.hand_in(standing.passes, _LAST, self._part(standing))
        if parts is not None:
            with self._saving():
                self._write(wish, standing, parts)

    def outside(self, wish: Wish, standing: Standing) -> None:
        """A checkpoint between two passes. Every rank has to call it, and is told of a failure."""
        agreement, rank = self._parts.agreement, self._parts.launch.rank
        with self._saving():
            everyone = agreement.gather(_CALL, part=self._part(standing))
            failure = ""
            if everyone[0]["rank"] == rank:
                parts = {fact["rank"]: fact["part"] for fact in everyone}
                try:
                    self._write(wish, standing, parts)
                except CheckpointError as error:
                    failure = str(error)
            said = agreement.gather(_CALL, failure=failure)
        if failures := [fact["failure"] for fact in said if fact["failure"]]:
            raise CheckpointError(failures[0])

    def _write(
        self, wish: Wish, standing: Standing, parts: Mapping[int, bytes], *, inside: bool = False
    ) -> None:
        began_s = self._parts.phases.now_s()
        if (home := self._home()) is not None:
            with suppress(OSError):  # only a signpost
                checkpoints.point_to(home, wish.directory)
        with self._parts.plane.cut() as cut:
            if inside and self._went_on(cut):
                self._missed = True
                return
            with checkpoints.begun(wish.directory) as partial:
                body = write_files(partial, self._snapshot(cut, standing, parts))
                path, size_bytes = checkpoints.commit(partial, body, keep=wish.keep)
        took_s = self._parts.phases.now_s() - began_s
        self._parts.journal.tell(
            "saved",
            f"saved version {cut.version} to {path} ({size_bytes / 1e6:.3g} MB, {took_s:.2f} s)",
        )

    def _went_on(self, cut: Cut) -> bool:
        """Whether a last round, in which this worker has no batch, was decided since it was reached:
        then the others' parts are older than the parameters, and the pass's end makes up for it."""
        plane = self._parts.plane
        return plane.together and cut.version != plane.position().version

    def _snapshot(self, cut: Cut, standing: Standing, parts: Mapping[int, bytes]) -> Snapshot:
        own = self._parts
        names = {id(p): name for name, p in own.model.named_parameters()}
        return Snapshot(
            cut=replace(cut, left=_left_of_all(cut, standing)),
            about={**self._about(standing), "samples": standing.samples_at(cut.progress)},
            parts=parts,
            model=own.model,
            optimizer_class=type(own.optimizer).__name__,
            groups=hyperparameters(own.optimizer),
            names=[names[id(parameter)] for parameter in own.trained],
            schedulers=own.schedules.states(),
            order=standing.order,
        )  # fmt: skip

    def _about(self, standing: Standing) -> dict[str, Any]:
        own = self._parts
        return {
            "paceline": paceline.__version__,
            "torch": torch.__version__,
            "saved_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "saved_at_s": time.time(),
            "passes": standing.passes,
            "inside": standing.inside,
            "calls": standing.calls,
            "strategy": str(own.options.strategy),
            "topology": own.plane.name,
            "world_size": own.launch.world_size,
            "accumulate": standing.window,
            "threads": torch.get_num_threads(),
            "seed": own.seed,
            "overrides": {k: str(v) if k == "strategy" else v for k, v in own.options.overridden.items()},
            "scheduled": own.schedules.progress,
            "loss_scale": own.plane.loss_scale() if own.precision.scale.dynamic else None,
            "lr_factor": own.launch.lr_factor,
            "recipe": str(own.options.recipe),
            "compress": str(own.options.compress),
        }  # fmt: skip

    def _part(self, standing: Standing) -> bytes:
        """What only this rank knows."""
        own = self._parts
        kept = own.model.state_dict(keep_vars=True)
        return pack_part(
            {
                "clock": own.plane.position().clock,
                "samples": standing.pass_samples,
                "streams": capture(own.device),
                "loaders": self._loaders.capture(),
                "began": standing.began,
                "position": standing.position,
                "own": own.plane.own_state(),
                "buffers": {n: b.detach() for n, b in own.model.named_buffers() if n in kept},
            }
        )

    def _saving(self) -> Any:
        return self._parts.phases.within("save")

    def _home(self) -> Path | None:
        """The directory that relative paths start from: where the run is recorded."""
        launch = self._parts.launch
        out = launch.out if launch.out is not None else self._parts.options.runtime.out
        return None if out is None else Path(out)


def refuse_never(strategy: Strategy, world_size: int) -> None:
    """Raises UsageError where workers never have a model in common."""
    if world_size > 1 and windows_apart(strategy) == inf:
        raise UsageError(
            f"worker.save and {strategy} cannot work together: the workers' models drift apart, and none "
            "is the run's. Use 'local:64', or torch.save on each rank."
        )


def _left_of_all(cut: Cut, standing: Standing) -> tuple[Left, ...]:
    """The undecided batches of the interrupted pass, in its own numbers."""
    if not standing.inside:
        return ()
    over = Left(owner=-1, next=standing.end, total=standing.end, returned=())
    return tuple(one for left in cut.left or (over,) for one in _in_whole(left, standing.lefts))


def _in_whole(left: Left, lefts: Mapping[int, Left]) -> list[Left]:
    if left.owner == -1 and lefts and -1 not in lefts:  # from each worker's own data, all alike
        return [outer.narrowed(left) for outer in lefts.values()]
    outer = lefts.get(left.owner) or lefts.get(-1)
    return [left if outer is None else replace(outer.narrowed(left), owner=left.owner)]
