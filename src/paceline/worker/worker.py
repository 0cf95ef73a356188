"""The public Worker: the few calls that a training loop needs. All work is done by its parts."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import torch
from torch import nn

from paceline.errors import MismatchError, PacelineError, StoppedError, UsageError
from paceline.launch.context import current_launch, forget_resume
from paceline.recipes import Recipe
from paceline.strategies import Strategy
from paceline.worker import resuming
from paceline.worker.assembly import assemble
from paceline.worker.batch import map_tensors
from paceline.worker.batches import Batches
from paceline.worker.drift_watch import watch_drift
from paceline.worker.evaluation import EvaluationBatches, Evaluator
from paceline.worker.exits import failure_text
from paceline.worker.health_watch import HealthWatch
from paceline.worker.leaving import leave
from paceline.worker.options import Runtime, options_from
from paceline.worker.planning import Demand
from paceline.worker.replaying import stop_at
from paceline.worker.results import StepResult, as_number
from paceline.worker.scheduling import Per
from paceline.worker.skips import SkipLimit
from paceline.worker.snapshot import Checkpoint
from paceline.worker.surroundings import surroundings
from paceline.worker.verifying import Verifying

_Scheduler = TypeVar("_Scheduler", bound=torch.optim.lr_scheduler.LRScheduler)

_DEFAULT_RUNTIME = Runtime()


class Worker:
    """One training process of a data-parallel run, or a plain training process if it is alone.

    ::

        worker = paceline.Worker(model, optimizer, strategy="ssp:3", accumulate=4)
        for inputs, targets in worker.batches(loader):      # this rank's share
            loss = criterion(worker(inputs), targets)       # forward
            worker.step(loss)                               # backward; at the window's end: update
        worker.close()

    ``strategy``: a word (``"sync"``, ``"backup:1"``, ``"ssp:3"``, ``"async"``) or its value.
    ``accumulate``: micro-batches per update; or ``global_batch``: samples per update of all workers,
    from which it follows. ``clip_norm``: largest gradient norm. ``batch_norm``: whose batches its
    statistics are of: each worker's (``"local"``, the default), all workers' (``"sync"``), none
    (``"freeze"``: the running ones). ``health``: look at the gradients of every window (True) or every
    k-th (docs/health.md). ``runtime``: details. ``precision``
    (``"fp32"``, ``"bf16"``, ``"fp16"``): what forward computes in; ``loss_scale`` (``"dynamic"``, a
    number, None; default: dynamic where something is fp16), ``reduce_dtype`` and ``accumulate_dtype``
    (the same words; default: fp32 at least) are for those who know why: docs/precision.md.
    ``recipe``: ``"stable"`` lets stale gradients (``ssp``, ``async``) lose little: docs/recipes.md.
    ``compress``: ``"topk:0.01"``, ``"randomk:0.01"``, ``"powersgd:4"``, ``"int8"``, ``"sign"`` or an object
    of your own: what gradients are made of on their way (docs/compression.md).
    ``group_size``: workers of a group under ``"hybrid:async"`` (default: those of a node; docs/hybrid.md).
    What the launcher's command line says about these overrides the script.

    At construction every rank takes rank 0's parameters and buffers; ranks other than 0 get random
    streams of their own. Raises UsageError for values that cannot work (alone or together),
    MismatchError if ranks differ, StoppedErrors whenever the run cannot go on.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        strategy: str | Strategy = "sync",
        accumulate: int = 1,
        global_batch: int | None = None,
        precision: str = "fp32",
        clip_norm: float | None = None,
        compress: Any = None,
        batch_norm: str | None = None,
        recipe: str | Recipe = "plain",
        health: bool | int = False,
        runtime: Runtime = _DEFAULT_RUNTIME,
        loss_scale: str | float | None = "auto",
        reduce_dtype: str | None = None,
        accumulate_dtype: str | None = None,
        group_size: int | None = None,
    ) -> None:
        launch = current_launch()
        options = options_from(
            {
                "strategy": strategy, "accumulate": accumulate, "global_batch": global_batch,
                "precision": precision, "clip_norm": clip_norm, "compress": compress,
                "batch_norm": batch_norm, "recipe": recipe, "health": health, "runtime": runtime,
                "loss_scale": loss_scale, "reduce_dtype": reduce_dtype,
                "accumulate_dtype": accumulate_dtype, "group_size": group_size,
            },
            launch.overrides,
        )  # fmt: skip
        self._training = model, optimizer, options, launch
        self._verify_every: int | None = None
        self._open(resuming.asked_by(launch))
        forget_resume()
        self._closed = False
        self._state_hook = optimizer.register_state_dict_pre_hook(self._before_state_dict)
        self._hooks = surroundings().exit_hooks(on_failure=self._fail, on_exit=self._at_exit)

    # ------------------------------------------------------------------------------ the loop

    def batches(
        self, loader: Iterable[Any], steps: int | None = None, split: bool = True
    ) -> Batches | EvaluationBatches:
        """This rank's share of ``loader``'s batches, on the model's device; iterate it once a pass.

        ``steps``: end after this many windows of each worker, reading the loader again and again if
        it is shorter. ``split=False``: the loader yields this rank's own data, all of which is used.
        A ``break`` ends the pass for this rank; the others go on. Inside :meth:`evaluate`: batches
        to evaluate.
        """
        self._check_open("batches")
        if self._evaluator.share is not None:
            return self._evaluator.batches(loader)
        return Batches(self._loop, Demand(loader=loader, steps=steps, split=split), self._parts)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The model's forward; 16-bit floating outputs come back as float32."""
        with self.autocast():
            outputs = self._parts.model(*inputs, **named)
        return map_tensors(outputs, _at_least_fp32)

    def autocast(self) -> AbstractContextManager[None]:
        """The context that forward runs in, for losses computed beside it. None at fp32."""
        return self._parts.precision.mode.context(self._parts.device.type)

    def step(self, loss: torch.Tensor, weight: float | None = None) -> StepResult:
        """Backward; at the window's end exchange, clip, update and clear, as the strategy says.

        ``loss``: a mean over ``weight`` items (samples or tokens; default: the batch's samples). The
        update is the weighted mean over window and workers. Call it once per batch.
        """
        self._check_open("step")
        if self._evaluator.share is not None:
            raise UsageError(
                "worker.step(loss) was called inside worker.evaluate(). Leave it first."
            )
        return self._loop.step(loss, weight)

    def stop(self, flag: bool = True) -> bool:
        """Outside the loop: whether any rank's ``flag`` is set; every rank must call it. Inside: a set
        flag ends the pass for all workers (it travels with the next push); returns the own flag."""
        self._check_open("stop")
        return self._loop.stop(bool(flag))

    def scheduler(self, scheduler: _Scheduler, per: Per = "batch") -> _Scheduler:
        """Advance ``scheduler`` by the progress of all workers: once per committed loader batch, or
        once per pass (``per="epoch"``). Do not call its ``step`` yourself. Returns it."""
        self._parts.schedules.add(scheduler, per)
        other = "" if per == "epoch" else " (per='epoch': once per pass)"
        self._parts.journal.say(f"{type(scheduler).__name__} advances once per {per}{other}")
        return scheduler

    # ------------------------------------------------------------------- measuring and saying

    def evaluate(self) -> AbstractContextManager[None]:
        """A context in eval mode without gradients; modes and parameters are put back at its end.

        Inside the training loop it concerns this rank alone: the latest parameters, the whole
        loader. After ``batches`` every rank must enter it: parameters are equal, the data is shared.
        """
        self._check_open("evaluate")
        inside = self._loop.inside
        if not inside:
            self._loop.agree_buffers("worker.evaluate")
        return self._evaluator.running(inside=inside)

    def mean(self, value: float | torch.Tensor, weight: float = 1.0) -> float:
        """The mean of all ranks' ``value``, each counted ``weight`` times; equal on all ranks.

        Inside an :meth:`evaluate` in the training loop it is this rank's own.
        """
        self._check_open("mean")
        if self._evaluator.share is None:
            if self._loop.inside:
                raise UsageError(
                    "worker.mean() was called inside the training loop, where workers are at "
                    "different batches. Call it after the loop, or inside worker.evaluate()."
                )
            self._loop.settle()
        return self._evaluator.mean(float(value), float(weight))

    def verify(self, every: int | None = None) -> None:
        """Compare with the other ranks what must be equal; every rank must call it, outside the loop.

        ``verify()``: now, everything. ``verify(every=k)``: from now on every k-th window of a pass,
        without waiting for anybody, and everything when a pass has ended. Raises ConsistencyError (on
        all ranks) that names the first difference, who says what, and its values.
        """
        self._check_open("verify")
        if self._loop.inside:
            raise UsageError(
                "worker.verify() was called inside the training loop, where workers are at different "
                "batches. Say worker.verify(every=100) before the loop: it checks inside."
            )
        self._loop.settle()
        self._verifying(every)
        self._verify_every = every or self._verify_every

    def log(self, **metrics: float | torch.Tensor) -> None:
        """Record numbers at this point of the run; rank 0's are the run's."""
        values = {name: as_number(name, value) for name, value in metrics.items()}
        self._parts.journal.metrics(values, version=self.version, samples=self.samples)

    @property
    def rank(self) -> int:
        """This worker's number."""
        return self._parts.launch.rank

    @property
    def world_size(self) -> int:
        """How many workers the run was started with."""
        return self._parts.launch.world_size

    @property
    def clock(self) -> int:
        """This worker's windows that were decided."""
        return self._parts.plane.position().clock

    @property
    def version(self) -> int:
        """Updates the parameters have seen, as far as this worker knows."""
        return self._parts.plane.position().version

    @property
    def loss_scale(self) -> float:
        """By what losses are multiplied now: the window's scale; 1 where nothing is fp16."""
        return self._parts.plane.loss_scale()

    @property
    def samples(self) -> float:
        """Samples in the updates of all workers: exact after a pass, else by the typical batch."""
        return self._loop.samples()

    # --------------------------------------------------------------------------- checkpoints

    def save(self, path: Path | str = "checkpoints", keep: int = 3) -> None:
        """Write a checkpoint into directory ``path``, of which the last ``keep`` stay.

        A relative path is below the directory of the run, if it is recorded. Every rank must call
        it, at the end of the loop's body or between loops; inside a window it is taken at the
        window's end. See docs/checkpoints.md for what it holds. Raises CheckpointError if it cannot
        be written: the earlier ones are intact then, and training can go on.
        """
        self._check_open("save")
        if self._evaluator.share is not None:
            raise UsageError("worker.save() was called inside worker.evaluate(). Leave it first.")
        self._loop.save(path, keep)

    def load(self, path: Path | str = "checkpoints") -> None:
        """Go on from the checkpoint at ``path``, or the newest there. Every rank must call it.

        Before the first pass the script then catches up: passes that had ended yield nothing, the
        interrupted one goes on with the batches that were left. Raises UsageError if there is no
        checkpoint, CheckpointError if it is damaged or of another model.
        """
        self._check_open("load")
        resuming.refuse_inside(self._loop)
        self._loop.settle()
        checkpoint = resuming.agreed(path, self._parts)
        catch_up, schedulers = not self._loop.begun, self._parts.schedules.added
        self._leave("finished")
        self._open(checkpoint, catch_up=catch_up)
        for scheduler, per in schedulers:
            self._parts.schedules.add(scheduler, per)

    # ---------------------------------------------------------------------------------- end

    def close(self, reason: Literal["finished", "departed"] = "finished") -> None:
        """Leave the run: finish what is due, then give model and optimizer back as plain ones.

        ``"departed"`` leaves at once, before the run's end. Closing twice is closing once.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if reason == "finished":
                self._loop.settle()
        finally:
            self._release(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended_well = isinstance(error, SystemExit) and not error.code
        if error is None or ended_well:
            self.close()
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """The script failed: stop the others with its text, and leave without waiting."""
        if self._closed:
            return
        if self._session is not None and not isinstance(error, StoppedError | MismatchError):
            self._session.abort(failure_text(error))
        with suppress(PacelineError):  # the script's own error is the one to hear of
            self.close("departed")

    def _at_exit(self) -> None:
        stopped = self._session is not None and self._session.stopped
        with suppress(StoppedError):  # a script that was stopped has heard why
            self.close("departed" if stopped else "finished")

    def _open(self, checkpoint: Checkpoint | None, *, catch_up: bool = True) -> None:
        """Join the group, with the state in ``checkpoint`` if there is one."""
        beginning = resuming.beginning_from(checkpoint, *self._training)
        self._parts, self._session = assemble(
            *self._training, beginning=beginning, around=surroundings()
        )
        self._loop = resuming.loop_from(checkpoint, self._parts, catch_up=catch_up)
        self._watch()
        self._evaluator = Evaluator(self._parts)

    def _watch(self) -> None:
        """What looks on at every window, in this group as in the one before it, if there was one."""
        options, launch = self._training[2:]
        self._parts.moments.decided.listen(SkipLimit(options.runtime.max_skips).feed)
        if launch.until is not None:
            self._parts.moments.decided.listen(stop_at(launch.until, self._loop.save_reached))
        watch_drift(self._parts)
        if options.health:
            HealthWatch(self._parts, options.health)
        self._verifying = Verifying(self._parts, self._session)
        if self._verify_every is not None:
            self._verifying(self._verify_every)

    def _release(self, reason: Literal["finished", "departed"]) -> None:
        self._hooks.remove()
        self._state_hook.remove()
        self._leave(reason)

    def _leave(self, reason: Literal["finished", "departed"]) -> None:
        self._verifying.remove()
        leave(self._parts, reason)

    def _before_state_dict(self, *_: Any) -> None:
        self._parts.plane.sync_optimizer()

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise UsageError(f"worker.{call}() was called after worker.close().")


def _at_least_fp32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
