"""One worker on its own: the user's optimizer, and not a bit different from a plain loop.

Gradients stay where autograd puts them. They are divided only if the window's weight asks for it,
and a window with a NaN or an infinity in it is skipped, counted and named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch

from paceline.gradients.buffer import stray_backward
from paceline.gradients.norm_limit import norm_limit
from paceline.gradients.norms import clip_by_norm, first_non_finite
from paceline.gradients.precision.accumulation import Accumulation
from paceline.gradients.precision.masters import Masters
from paceline.worker.manifest import Trainable
from paceline.worker.optimizer_state import dump_state, step
from paceline.worker.plane import Contribution, Cut, Outcome, PassPlan, Position, Window
from paceline.worker.progress import ScheduledPass, cut_at, outcome_after
from paceline.worker.training import Training


class LocalPlane:
    """The plane of a single worker, under every strategy (they are all the same at N=1)."""

    name = "local"
    together = True
    account = None

    def __init__(self, training: Training) -> None:
        self._training = training
        self._parameters = training.parameters
        self._accumulation = Accumulation(training.parameters, training.precision.accumulate)
        self._masters = Masters(training.optimizer, training.parameters)
        self._position = Position(version=training.version, progress=training.progress)
        self._scale = training.precision.scale
        self._limit = norm_limit(training.clip_norm, training.limit)
        self._pass: ScheduledPass | None = None
        self._armed = False
        self._handles = [
            one.parameter.register_post_accumulate_grad_hook(partial(self._accumulated, one.name))  # type: ignore[no-untyped-call]
            for one in _ends(training.trainables)
        ]

    def position(self) -> Position:
        return self._position

    def loss_scale(self) -> float:
        return self._scale.value

    def open_pass(self, plan: PassPlan) -> None:
        self._pass = ScheduledPass(plan, rank=0, world_size=1)

    def leases(self) -> list[int]:
        return self._pass.leases() if self._pass else []

    def next_window(self) -> Window | None:
        if self._pass is None:
            return None
        batches = self._pass.window()
        if not batches:
            self._pass = None
            return None
        return Window(
            clock=self._position.clock,
            version=self._position.version,
            batches=batches,
            unit=None,
            scale=self._scale.value,
        )

    def before_backward(self, *, last: bool) -> None:
        if not self._armed and self._position.clock:  # gradients from before the Worker may stay
            self._refuse_strays()
        self._armed = True

    def exchange(self, contribution: Contribution) -> Outcome:
        assert self._pass is not None, "exchange outside a pass"
        began_s = self._training.clock_s()
        batches = self._pass.computed(contribution.total)
        norm, reason = self._apply(contribution, self._pass.plan.window)
        if contribution.weight > 0:
            self._scale = self._scale.after(finite=norm is not None)
        self._clear()
        self._pass.advance()
        if contribution.stop:
            self._pass = None
        outcome = outcome_after(
            self._position,
            batches=batches,
            norm=norm,
            reason=reason,
            exchange_s=self._training.clock_s() - began_s,
            weight=contribution.weight,
        )
        self._position = outcome.position
        return outcome

    def end_pass_early(self) -> None:
        self._pass = None

    def latest(self) -> AbstractContextManager[None]:
        return nullcontext()  # the model always holds it

    def gather(self, tag: str, payload: bytes) -> list[bytes]:
        return [payload]

    def broadcast(self, tensors: list[torch.Tensor]) -> None:
        return

    def hand_in(self, pass_id: int, number: int, part: bytes) -> dict[int, bytes] | None:
        return {0: part}

    def own_state(self) -> dict[str, Any]:
        return {}

    @contextmanager
    def cut(self) -> Iterator[Cut]:
        state = dump_state(self._training.optimizer, self._training.trainables)
        limit = self._limit.state
        yield cut_at(self._position, self._pass, workers=1, state=state, limit=limit)

    def sync_optimizer(self) -> None:
        return

    def close(self, reason: Literal["finished", "departed"]) -> None:
        self._pass = None
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._masters.close()
        self._accumulation.close()

    def _apply(self, contribution: Contribution, window: int) -> tuple[float | None, str]:
        """The norm of the gradient if it was applied, else None; and why."""
        if contribution.weight == 0:
            return None, "nothing was computed in this window"
        self._divide(contribution.weight / contribution.unit)
        norm = clip_by_norm(self._parameters, self._limit.now)
        if not math.isfinite(norm):
            bad = first_non_finite(self._parameters)
            if bad is not None:
                return None, f"the gradient of {self._training.trainables[bad].name} is not finite"
            if self._limit.now is not None:
                return None, "the gradient's norm overflowed"
        self._limit.feed(norm)
        factor = self._training.rate_factor(self._position.progress, window)
        self._masters.step(partial(step, self._training, factor))
        return norm, "alone"

    def _divide(self, divisor: float) -> None:
        if divisor == 1.0:
            return
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.div_(divisor)

    def _clear(self) -> None:
        self._armed = False
        for parameter in self._parameters:
            parameter.grad = None

    def _refuse_strays(self) -> None:
        """No hook has seen a backward outside ``step``, but it left gradients."""
        for one in self._training.trainables:
            if one.parameter.grad is not None:
                raise stray_backward(one.name)

    def _accumulated(self, name: str, parameter: torch.Tensor) -> None:
        if not self._armed:
            parameter.grad = None
            raise stray_backward(name)


def _ends(trainables: Sequence[Trainable]) -> Sequence[Trainable]:
    """The first and the last: a hook on every parameter would cost 2 microseconds for each."""
    return trainables if len(trainables) < 2 else (trainables[0], trainables[-1])
