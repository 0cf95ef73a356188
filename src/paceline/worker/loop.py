"""The passes of one worker, one after another, and what is settled between them.

A pass that the user left early is finished here, at the next call that needs the group: never while
an exception may be on its way.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from paceline.errors import UsageError
from paceline.worker import buffers
from paceline.worker.announce import announce
from paceline.worker.feeding import StreamFeed
from paceline.worker.manifest import hyperparameters
from paceline.worker.outside import refuse_different_groups
from paceline.worker.parts import Parts
from paceline.worker.planning import Demand, batches_in, check_same_order, plan_pass
from paceline.worker.results import StepResult
from paceline.worker.training_pass import TrainingPass

_END = "the end of batches"


class Loop:
    """What ``worker.batches``, ``step`` and ``stop`` do."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._pass: TrainingPass | None = None
        self._passes = 0
        self._announced = False
        self._own_samples = 0.0
        self._settled_samples = 0.0
        self._settled_progress = 0

    @property
    def inside(self) -> bool:
        """Whether the user is inside the loop over ``batches``."""
        return self._pass is not None and self._pass.active

    def run(self, demand: Demand) -> Generator[Any, None, None]:
        """A pass over the data, as the user's loop sees it."""
        if self.inside:
            raise UsageError(
                "worker.batches(...) was begun while another is still iterated. One pass at a time: "
                "zip the loaders, not the batches: worker.batches(list(zip(a, b)))."
            )
        self.settle()
        planned = plan_pass(demand, self._parts, self._passes)
        self._announce(planned.samples, planned.plan.window)
        self._pass = current = TrainingPass(self._parts, planned)
        self._passes += 1
        yield from current.batches()
        if not current.over and not current.broken_off:
            self._finish(current)

    def step(self, loss: Any, weight: float | None) -> StepResult:
        """See :meth:`paceline.Worker.step`."""
        if self._pass is None or self._pass.over:
            raise UsageError(
                "worker.step(loss) was called outside the loop over worker.batches(...): there is no "
                "batch it could belong to. Write 'for ... in worker.batches(loader):' around it."
            )
        return self._pass.step(loss, weight)

    def settle(self) -> None:
        """Finish a pass that the user left early, together with the others."""
        current = self._pass
        if current is None or current.over:
            return
        current.drain()
        self._finish(current)

    def agree_buffers(self, call: str) -> None:
        """Make buffers (batch-norm statistics) equal on all live ranks, each of which has to make
        this ``call``. A pass that was left early is finished first."""
        if not self.inside:
            self.settle()
        parts = self._parts
        if not any(True for _ in parts.model.buffers()):
            return
        everyone = parts.agreement.gather(call, buffers=buffers.digests(parts.model))
        weight = self._pass.samples if self._pass is not None else 0.0
        buffers.agree(parts.model, parts.agreement, [f["buffers"] for f in everyone], weight)

    def stop(self, flag: bool) -> bool:
        """See :meth:`paceline.Worker.stop`."""
        if self._pass is None or not self._pass.active:
            self.settle()
            return self._parts.agreement.any("worker.stop", flag)
        self._pass.stop = self._pass.stop or flag
        return self._pass.stop

    def samples(self) -> float:
        """Samples committed by all workers: exact when a pass has ended, else nearly so."""
        if self._pass is None:
            return 0.0
        since = self._parts.plane.position().progress - self._settled_progress
        return self._settled_samples + since * self._pass.plan.unit

    def _announce(self, samples: float, window: int) -> None:
        if not self._announced:
            self._announced = True
            announce(self._parts, batch=samples, window=window)

    def _finish(self, current: TrainingPass) -> None:
        """Every live worker's windows are decided: agree on what else must be equal."""
        parts = self._parts
        current.over = True
        parts.phases.enter("wait")
        parts.moments.ended()
        self._settle_samples(current)
        if (
            isinstance(current.feed, StreamFeed)
            and current.plan.split
            and parts.launch.world_size > 1
        ):
            check_same_order(current.feed, parts)
        current.feed.close()
        parts.schedules.advance_to(parts.plane.position().progress)
        parts.schedules.end_pass()
        self._record(current)
        parts.phases.enter("user")

    def _settle_samples(self, current: TrainingPass) -> None:
        parts = self._parts
        self._own_samples += current.samples
        facts = parts.agreement.gather(
            _END,
            samples=self._own_samples,
            buffers=buffers.digests(parts.model),
            groups=hyperparameters(parts.optimizer),
        )
        refuse_different_groups(facts)
        buffers.agree(
            parts.model, parts.agreement, [fact["buffers"] for fact in facts], current.samples
        )
        estimate = self.samples()
        everyone = len(facts) == parts.launch.world_size  # the dead cannot say what they had done
        self._settled_samples = sum(fact["samples"] for fact in facts) if everyone else estimate
        self._settled_progress = parts.plane.position().progress

    def _record(self, current: TrainingPass) -> None:
        position = self._parts.plane.position()
        self._parts.journal.pass_ended(
            pass_id=current.plan.pass_id,
            started_s=current.started_s,
            version=position.version,
            progress=position.progress,
            skipped=current.skipped,
        )


class Batches:
    """What ``worker.batches(loader)`` returns: iterate it once per pass; ``len`` is this rank's share."""

    def __init__(self, loop: Loop, demand: Demand, parts: Parts) -> None:
        self._loop = loop
        self._demand = demand
        self._parts = parts

    def __iter__(self) -> Iterator[Any]:
        return self._loop.run(self._demand)

    def __len__(self) -> int:
        """This rank's batches: exact where they are dealt, the equal share where handed out on demand.

        Raises TypeError where the loader has no length.
        """
        launch = self._parts.launch
        window = self._window() if self._demand.steps is not None else 1
        total = batches_in(self._demand, window=window, world_size=launch.world_size)
        if total is None:
            raise TypeError(f"{type(self._demand.loader).__name__} has no length; give steps=")
        if not self._demand.split:
            return total
        own, left = divmod(total, launch.world_size)
        return own + (launch.rank < left)

    def _window(self) -> int:
        options, batch = self._parts.options, getattr(self._demand.loader, "batch_size", None)
        if options.accumulate is None and batch is None:
            raise TypeError(
                "how many batches make global_batch is known once the first one is seen"
            )
        return options.window(batch=batch or 1, world_size=self._parts.launch.world_size)
