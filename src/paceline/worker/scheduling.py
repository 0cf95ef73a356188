"""Learning-rate schedules that follow the group's progress instead of this worker's own steps.

A schedule counts loader batches whose update was applied, of all workers together, so that a cosine
ends at the same point under every strategy. Where workers meet now and then it goes ahead on what they
are expected to compute, and is put right when they meet. Knows numbers only; planes see the changed
hyper-parameters in the optimizer's groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from paceline.errors import CheckpointError, UsageError, bad_value
from paceline.worker.moments import Moment
from paceline.worker.schedule_marks import Mark

Per = Literal["batch", "epoch"]


class Schedules:
    """The schedulers that were handed to ``Worker.scheduler``, and how far they have come.

    ``stepping``, ``stepped``: the moments before and after one of them changes hyper-parameters.
    """

    def __init__(self, progress: int) -> None:
        self.stepping: Moment[[]] = Moment()
        self.stepped: Moment[[]] = Moment()
        self._progress = progress
        self._per_batch: list[LRScheduler] = []
        self._per_epoch: list[LRScheduler] = []
        self._stepped: dict[int, int] = {}
        self._mark: Mark | None = None
        self.added: list[tuple[LRScheduler, Per]] = []
        """All of them, in the order in which they came."""
        self._saved: list[dict[str, Any]] = []
        self._when_restored: Callable[[], None] = _nothing

    @property
    def progress(self) -> int:
        """Loader batches for which they have been advanced."""
        return self._progress

    def states(self) -> list[dict[str, Any]]:
        """Where each of them stands, for a checkpoint."""
        return [
            {"class": type(one).__name__, "per": per, "state": one.state_dict()}
            for one, per in self.added
        ]

    def expect(
        self, states: list[dict[str, Any]], progress: int, when_restored: Callable[[], None]
    ) -> None:
        """The schedulers that come have these ``states``, of a checkpoint at ``progress``.

        ``when_restored()``: called after each, to put back the hyper-parameters that making it changed.
        """
        self._saved = list(states)
        self._progress = progress
        self._when_restored = when_restored

    def add(self, scheduler: LRScheduler, per: Per) -> None:
        """Advance ``scheduler`` from now on, per committed ``"batch"`` or per ``"epoch"`` (pass)."""
        if isinstance(scheduler, ReduceLROnPlateau):
            raise UsageError(
                "worker.scheduler(ReduceLROnPlateau): it needs a metric. Call scheduler.step(metric) "
                "yourself, on every rank, with a metric from worker.mean(...)."
            )
        if not hasattr(scheduler, "step"):
            raise bad_value("scheduler", scheduler, "a torch.optim.lr_scheduler")
        if per not in ("batch", "epoch"):
            raise bad_value("per", per, "'batch' or 'epoch'")
        (self._per_batch if per == "batch" else self._per_epoch).append(scheduler)
        self.added.append((scheduler, per))
        if self._saved:
            self._restore(scheduler, self._saved.pop(0))
        self._stepped[id(scheduler)] = getattr(scheduler, "last_epoch", 0)

    def _restore(self, scheduler: LRScheduler, saved: dict[str, Any]) -> None:
        name = type(scheduler).__name__
        if name != saved["class"]:
            raise CheckpointError(
                f"The checkpoint was made with a {saved['class']} here, and the script has a {name}. "
                "Give worker.scheduler the same schedulers in the same order."
            )
        scheduler.load_state_dict(saved["state"])
        self._when_restored()

    def advance_to(self, progress: int, *, estimated: bool = False) -> None:
        """All workers together have committed ``progress`` loader batches; ``estimated``: or it is
        expected of them, until a call that is sure. One that says less than was expected goes back,
        but not behind a hyper-parameter that was changed by hand meanwhile."""
        if self._mark is not None and self._mark.touched():
            self._mark = Mark(self._per_batch, self._progress)
        if estimated and self._mark is None:
            self._mark = Mark(self._per_batch, self._progress)
        if not estimated:
            self._settle(progress)
        if progress > self._progress:
            self._step_to(progress)

    def _settle(self, progress: int) -> None:
        """Nothing is expected any more."""
        mark, self._mark = self._mark, None
        if mark is None or progress >= self._progress:
            return
        self.stepping()
        mark.go_back()
        self.stepped()
        self._progress = mark.progress
        for scheduler in self._per_batch:
            self._stepped[id(scheduler)] = getattr(scheduler, "last_epoch", 0)

    def _step_to(self, progress: int) -> None:
        for _ in range(progress - self._progress):
            for scheduler in self._per_batch:
                self._step(scheduler)
        self._progress = progress
        if self._mark is not None:
            self._mark.note()

    def end_pass(self) -> None:
        """A pass over the data is over for everyone."""
        for scheduler in self._per_epoch:
            self._step(scheduler)

    def _step(self, scheduler: LRScheduler) -> None:
        epoch = getattr(scheduler, "last_epoch", 0)
        if self._stepped.get(id(scheduler), epoch) != epoch:
            raise UsageError(
                f"{type(scheduler).__name__}.step() was called beside worker.scheduler(...), which "
                "advances it with the progress of all workers. Delete the line 'scheduler.step()'."
            )
        with warnings.catch_warnings():  # torch looks for optimizer.step(), which a server may do
            warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
            warnings.filterwarnings("ignore", message=".*optimizer.step.*")
            self.stepping()
            scheduler.step()
            self.stepped()
        self._stepped[id(scheduler)] = getattr(scheduler, "last_epoch", 0)


def _nothing() -> None:
    """Nothing was restored."""
