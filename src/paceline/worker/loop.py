"""The passes of one worker, one after another, and what is settled between them.

A pass that the user left early is finished here, at the next call that needs the group: never while
an exception may be on its way.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from paceline.errors import UsageError
from paceline.events import Left
from paceline.worker import buffers
from paceline.worker.announce import announce
from paceline.worker.catching_up import CatchingUp
from paceline.worker.feeding import StreamFeed
from paceline.worker.manifest import hyperparameters
from paceline.worker.outside import refuse_different_groups
from paceline.worker.parts import Parts
from paceline.worker.planning import Demand, Planned, check_same_order, plan_pass
from paceline.worker.results import StepResult
from paceline.worker.saving import Saver, Standing, Wish
from paceline.worker.streams import LoaderGenerators, capture
from paceline.worker.training_pass import TrainingPass

_END = "the end of batches"
_ALL = 10**6
"""More checkpoints than anybody keeps."""


class Loop:
    """What ``worker.batches``, ``step``, ``stop`` and ``save`` do.

    ``catching_up``: what a resumed script has to go through again (None: nothing). ``samples``: of
    all workers in the updates made so far.
    """

    def __init__(
        self, parts: Parts, catching_up: CatchingUp | None = None, samples: float = 0.0
    ) -> None:
        self._parts = parts
        self._catching_up = catching_up or CatchingUp(None)
        self._loaders = LoaderGenerators()
        self._saver = Saver(parts, self._loaders)
        self._saves_outside = 0
        self._began: dict[str, Any] | None = None
        self._lefts: dict[int, Left] = {}
        self._samples_before = samples
        self._pass_samples_before = 0.0
        self._pass: TrainingPass | None = None
        self._passes = 0
        self._announced = False
        self._own_samples = 0.0
        self._settled_samples = samples
        self._settled_progress = parts.plane.position().progress

    @property
    def begun(self) -> bool:
        """Whether a pass was begun."""
        return self._passes > 0

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
        if self._skip(demand):
            return
        self._pass = current = self._begin(demand)
        self._passes += 1
        yield from current.batches()
        if not current.over and not current.broken_off:
            self._finish(current)

    def save(self, path: Any, keep: int) -> None:
        """See :meth:`paceline.Worker.save`."""
        wish = self._saver.wish_for(path, keep)
        if self._pass is None or not self._pass.active:
            self._save_outside(wish)
        elif self._pass.between_windows and self._parts.plane.settled:
            self._saver.inside(wish, self._standing())
        else:
            self._saver.wish = wish
            self._pass.at_window_end = partial(self._save_at_end, wish)

    def save_reached(self) -> None:
        """Save the version at which a replay is to stop, which this worker's push has made."""
        wish = self._saver.wish_for("checkpoints", _ALL)
        self._saver.reached(wish, self._standing())

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
        if not any(True for _ in parts.model.buffers()) or not parts.plane.settled:
            return  # replicas that never meet have statistics of their own
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
            return self._settled_samples
        since = self._parts.plane.position().progress - self._settled_progress
        return self._settled_samples + since * self._pass.plan.unit

    def _skip(self, demand: Demand) -> bool:
        """Whether this pass had ended when the checkpoint was taken that is being resumed."""
        self._loaders.meet(demand.loader)
        skipped = self._catching_up.skips(self._passes)
        if skipped:
            self._passes += 1
            self._saves_outside = 0
            self._arrive_if_made_here()
        return skipped

    def _begin(self, demand: Demand) -> TrainingPass:
        parts, device = self._parts, self._parts.device
        going_on = self._catching_up.interrupted(self._loaders, device)
        if going_on is None:
            self._arrive()
        self._lefts = {} if going_on is None else going_on.lefts
        self._began = {"streams": capture(device), "loaders": self._loaders.capture()}
        planned = plan_pass(demand, parts, self._passes, going_on)
        self._announce(planned)
        self._saver.begin_pass()
        current = TrainingPass(parts, planned)
        self._pass_samples_before = self._arrive()
        return current

    def _arrive(self) -> float:
        parts = self._parts
        return self._catching_up.arrive(parts.model, self._loaders, parts.device, parts.seed)

    def _arrive_if_made_here(self) -> None:
        if self._catching_up.made_by(passes=self._passes, calls=self._saves_outside):
            self._arrive()

    def _save_outside(self, wish: Wish) -> None:
        self.settle()
        self._saves_outside += 1
        if self._catching_up.over:
            self._saver.outside(wish, self._standing())
        else:
            self._arrive_if_made_here()

    def _save_at_end(self, wish: Wish) -> None:
        self._saver.inside(wish, self._standing())

    def _make_up(self, facts: list[dict[str, Any]]) -> None:
        """A checkpoint that not all workers could ask for, having no batch any more, is taken now."""
        most = max(facts, key=lambda fact: (fact["saves"], fact["directory"]))
        unequal = most["saves"] > min(fact["saves"] for fact in facts)
        unequal = unequal or any(fact["missed"] for fact in facts)
        if most["saves"] > 1 and (silent := [f["rank"] for f in facts if not f["saves"]]):
            self._parts.journal.note("notice", _never_saved(most, silent))
        if unequal and self._parts.plane.together:
            wish = self._saver.wish_for(most["directory"], most["keep"])
            self._saver.outside(wish, self._standing())

    def _standing(self) -> Standing:
        """Where this worker is, for a checkpoint."""
        current = self._pass
        if current is None or current.over:
            return Standing(
                passes=self._passes,
                inside=False,
                calls=self._saves_outside,
                samples=self.samples(),
                progress=self._parts.plane.position().progress,
                window=None if current is None else current.plan.window,
            )
        return Standing(
            passes=self._passes - 1,
            inside=True,
            calls=0,
            samples=self.samples(),
            progress=self._parts.plane.position().progress,
            unit=current.plan.unit,
            pass_samples=current.samples + self._pass_samples_before,
            window=current.plan.window,
            order=current.order,
            lefts=self._lefts,
            end=current.end,
            began=self._began,
            position=getattr(current.feed, "position", None),
        )

    def _announce(self, planned: Planned) -> None:
        if not self._announced:
            self._announced = True
            plan = planned.plan
            announce(self._parts, batch=planned.samples, window=plan.window, total=plan.total)

    def _finish(self, current: TrainingPass) -> None:
        """Every live worker's windows are decided: agree on what else must be equal."""
        parts = self._parts
        current.over = True
        parts.phases.enter("wait")
        parts.moments.ended()
        if current.at_window_end is not None:
            self._saver.missed()
        facts = self._settle_samples(current)
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
        self._saves_outside = 0
        self._make_up(facts)
        parts.phases.enter("user")

    def _settle_samples(self, current: TrainingPass) -> list[dict[str, Any]]:
        parts = self._parts
        self._own_samples += current.samples
        facts = parts.agreement.gather(
            _END,
            samples=self._own_samples,
            buffers=buffers.digests(parts.model),
            groups=hyperparameters(parts.optimizer),
            **self._saver.asked(),
        )
        refuse_different_groups(facts)
        if parts.plane.settled:
            buffers.agree(
                parts.model,
                parts.agreement,
                [fact["buffers"] for fact in facts],
                current.samples + self._pass_samples_before,
            )
        estimate = self.samples()
        everyone = len(facts) == parts.launch.world_size  # the dead cannot say what they had done
        total = self._samples_before + sum(fact["samples"] for fact in facts)
        self._settled_samples = total if everyone else estimate
        self._settled_progress = parts.plane.position().progress
        return facts

    def _record(self, current: TrainingPass) -> None:
        position = self._parts.plane.position()
        self._parts.journal.pass_ended(
            pass_id=current.plan.pass_id,
            started_s=current.started_s,
            version=position.version,
            progress=position.progress,
            skipped=current.skipped,
        )


def _never_saved(most: dict[str, Any], silent: list[int]) -> str:
    ranks = ", ".join(map(str, silent))
    return (
        f"rank {most['rank']} called worker.save {most['saves']} times in this pass and rank {ranks} "
        "never: every rank must call it, or nothing is written inside the loop. Delete the condition "
        "on the rank: one of them writes."
    )
