"""One pass over the data: windows from the plane, batches to the user, gradients to the plane.

Owns the micro-batch index and the order of backward, emulated delay and exchange, so that a caller
cannot get them wrong. Knows no strategy: what a window covers and becomes is the plane's word.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import torch

from paceline.errors import StoppedError, UsageError, bad_value
from paceline.worker.batch import on_device, samples_in
from paceline.worker.feeding import END
from paceline.worker.order import Order
from paceline.worker.parts import Parts
from paceline.worker.plane import Outcome
from paceline.worker.planning import Planned
from paceline.worker.results import StepResult
from paceline.worker.window import OpenWindow, checked_weight, pending

_OUTSIDE = (
    "worker.step(loss) was called outside the loop over worker.batches(...): there is no batch it "
    "could belong to. Write 'for ... in worker.batches(loader):' around it."
)
_TWICE = (
    "worker.step(loss) was called twice for one batch. Add the losses and call it once; several "
    "forwards per step are fine."
)


@dataclass(kw_only=True)
class _InHand:
    """The batch that the user has."""

    samples: float
    stepped: bool = False


class TrainingPass:
    """A pass from ``open_pass`` until every live worker agrees that it is over.

    ``over``: nothing is left to do. ``broken_off``: the user left the loop before its end, by
    ``break`` or an exception; what the group expects of this worker is then still due (:meth:`drain`).
    """

    def __init__(self, parts: Parts, planned: Planned) -> None:
        self._parts = parts
        self._planned = planned
        self._window: OpenWindow | None = None
        self._in_hand: _InHand | None = None
        self._total: int | None = None
        self.plan = planned.plan
        self.feed = planned.feed
        self.started_s = parts.phases.now_s()
        self.skipped = 0
        self.samples = 0.0
        self.stop = False
        self.broken_off = False
        self.over = False
        self.at_window_end: Callable[[], None] | None = None
        """To be called once, when the window in hand is decided and the model is all workers'."""
        parts.pace.begin()
        parts.plane.open_pass(planned.plan)
        parts.moments.opened(planned.plan.pass_id)
        self._prefetch()

    @property
    def active(self) -> bool:
        """Whether the user is inside the loop."""
        return not self.over and not self.broken_off

    @property
    def between_windows(self) -> bool:
        """Whether no window is begun and undecided."""
        return self._window is None

    @property
    def order(self) -> Order | None:
        """The order of the whole pass, if it was drawn for all ranks."""
        return self._planned.order

    @property
    def end(self) -> int:
        """How many batches the pass has, as far as they were met if nobody knows."""
        total = self.plan.total
        return int(getattr(self.feed, "length", 0)) if total is None else total

    def batches(self) -> Generator[Any, None, None]:
        """This worker's batches on the model's device, until the pass is over for everyone."""
        try:
            while self.active and self._start_window():
                yield from self._window_batches()
                self._end_window()
        except StoppedError:
            self.over = True
            raise
        except BaseException:
            # A break (GeneratorExit), or an exception on its way up: neither may wait here.
            self.broken_off = True
            self._parts.phases.enter("user")
            raise

    def step(self, loss: Any, weight: float | None) -> StepResult:
        """Backward of one micro-batch; at the window's end also the exchange."""
        in_hand, window = self._in_hand, self._window
        if in_hand is None or self.broken_off:
            raise UsageError(_OUTSIDE)
        if in_hand.stepped or window is None:
            raise UsageError(_TWICE)
        counted = checked_weight(weight, in_hand.samples)
        _check_loss(loss)
        in_hand.stepped = True
        if counted > 0:
            self._backward(loss, counted, window)
            window.add(counted, in_hand.samples, loss.item())
        self._parts.phases.enter("forward")
        self._parts.pace.hold()
        if not window.complete:
            self._to_user()
            return pending(self._parts.plane.position().version, window.window.scale)
        outcome = self._exchange(window)
        return StepResult(
            window_ended=True,
            applied=outcome.applied,
            reason=outcome.reason,
            norm=outcome.norm,
            version=outcome.version,
            scale=window.window.scale,
        )

    def drain(self) -> None:
        """Do what is still due after a break: hand in the window, then wait out the others' pass."""
        assert not self.over
        self.broken_off = True
        self._in_hand = None
        try:
            self._end_window()
            self._parts.plane.end_pass_early()
            while self._start_window():
                self._end_window()
        except BaseException:
            self.over = True
            raise

    def _start_window(self) -> bool:
        parts = self._parts
        parts.outside.check()
        parts.phases.enter("wait")
        with parts.guards:  # others may have updates to share with this worker
            window = parts.plane.next_window()
        if window is not None:
            window = parts.pace.started(window)
        parts.outside.note()
        self._advance_schedules()
        parts.phases.take()
        parts.phases.enter("data")
        if window is None:
            return False
        self._prefetch()
        self._window = OpenWindow(
            window=window, default_unit=self.plan.unit, started_s=parts.phases.now_s()
        )
        parts.moments.started(window)
        return True

    def _window_batches(self) -> Generator[Any, None, None]:
        assert self._window is not None
        for number in self._window.window.batches:
            batch = self.feed.get(number)
            if batch is END:
                self._total = self._stream_length()
                return
            yield self._hand_out(batch)
            if not self.active:  # settled by another call while the user kept the iterator
                return
            self._take_back()

    def _hand_out(self, batch: Any) -> Any:
        assert self._window is not None
        self._window.handed_out += 1
        phases = self._parts.phases
        moved = on_device(batch, self._parts.device)
        phases.enter("forward")
        self._in_hand = _InHand(samples=samples_in(batch))
        return moved

    def _take_back(self) -> None:
        assert self._in_hand is not None
        if not self._in_hand.stepped:
            self.skipped += 1
        self._in_hand = None
        self._parts.phases.enter("data")
        self._parts.pace.enter()

    def _backward(self, loss: torch.Tensor, weight: float, window: OpenWindow) -> None:
        self._parts.phases.enter("backward")
        overlaps = window.complete and not self._parts.moments.keeps()
        self._parts.plane.before_backward(last=overlaps)
        factor = window.factor(weight)
        spoiled, window.spoiled = window.spoiled, True
        (loss if factor == 1.0 else loss * factor).backward()  # type: ignore[no-untyped-call]
        window.spoiled = spoiled

    def _to_user(self) -> None:
        self._parts.phases.enter("user")
        self._parts.pace.leave()

    def _end_window(self) -> None:
        """Exchange the window unless ``step`` did: its last batch was skipped, or never came."""
        if self._window is not None:
            self._exchange(self._window)

    def _exchange(self, window: OpenWindow) -> Outcome:
        parts = self._parts
        parts.outside.check()
        self._window = None
        if window.spoiled:
            for parameter in parts.trained:
                parameter.grad = None
        parts.phases.enter("exchange")
        contribution = window.contribution(stop=self.stop, total=self._total)
        parts.moments.computed(contribution)
        parts.pace.push()
        try:
            with parts.guards:
                outcome = parts.plane.exchange(contribution)
        except StoppedError:
            self.over = True
            raise
        parts.pace.decided(outcome)
        parts.outside.note()
        self._record(window, outcome)
        self._advance_schedules()
        parts.moments.decided(outcome)
        if self.at_window_end is not None and parts.plane.settled:
            due, self.at_window_end = self.at_window_end, None
            due()
        return outcome

    def _record(self, window: OpenWindow, outcome: Outcome) -> None:
        journal, loss = self._parts.journal, window.loss()
        if outcome.applied:
            self.samples += window.samples
        journal.step(
            window.window,
            outcome,
            started_s=window.started_s,
            batches=window.handed_out,
            weight=window.weight,
            loss=loss,
        )
        self._to_user()
        journal.watch(loss, self._parts.optimizer, outcome.version)

    def _advance_schedules(self) -> None:
        now = self._parts.plane.position()
        self._parts.schedules.advance_to(now.progress, estimated=now.estimated)

    def _prefetch(self) -> None:
        if not self.broken_off:
            self.feed.prefetch(self._parts.plane.leases())

    def _stream_length(self) -> int | None:
        """How many batches the stream had, now that its end was met."""
        return getattr(self.feed, "length", None)


def _check_loss(loss: Any) -> None:
    if callable(loss) and not isinstance(loss, torch.Tensor):
        raise UsageError(
            "worker.step(closure): an optimizer that evaluates the loss itself (LBFGS) cannot be "
            "trained in a group. Compute the loss and call worker.step(loss)."
        )
    if not isinstance(loss, torch.Tensor):
        raise bad_value(
            "loss",
            loss,
            "a tensor that depends on the model's parameters",
            "Pass the loss itself, not loss.item().",
        )
    if loss.numel() != 1:
        raise bad_value(
            "loss", f"tensor of shape {tuple(loss.shape)}", "a scalar", "Use its mean: loss.mean()."
        )
    if not loss.requires_grad:
        raise bad_value(
            "loss",
            "a tensor without gradient",
            "one that depends on the model's parameters",
            "Was it computed under no_grad, or detached?",
        )
