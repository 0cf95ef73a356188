"""A worker's own optimizer, stepped with the worker's own gradients: not a bit different from a plain loop.

Gradients stay where autograd puts them. They are divided only if the window's weight asks for it,
and a window with a NaN or an infinity in it is skipped and named. Knows no plane, no pass and no
other worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch

from paceline.gradients.buffer import stray_backward
from paceline.gradients.norm_limit import norm_limit
from paceline.gradients.norms import clip_by_norm, first_non_finite
from paceline.gradients.precision.accumulation import Accumulation
from paceline.gradients.precision.masters import Masters
from paceline.worker.manifest import Trainable
from paceline.worker.optimizer_state import step
from paceline.worker.plane import Contribution
from paceline.worker.training import Training


class OwnStep:
    """Turns the window's gradients into a step of the user's optimizer.

    ``where``: said behind the name of a parameter whose gradient is bad, as in ``" on rank 1"``.
    """

    def __init__(self, training: Training, *, where: str = "") -> None:
        self._training = training
        self._where = where
        self._parameters = training.parameters
        self._accumulation = Accumulation(training.parameters, training.precision.accumulate)
        self._masters = Masters(training.optimizer, training.parameters)
        self._limit = norm_limit(training.clip_norm, training.limit)
        self._armed = False
        self._begun = False
        self.scale = training.precision.scale
        self._handles = [
            one.parameter.register_post_accumulate_grad_hook(partial(self._accumulated, one.name))  # type: ignore[no-untyped-call]
            for one in _ends(training.trainables)
        ]

    @property
    def limit_state(self) -> list[float] | None:
        """Of the limit on norms, for a checkpoint."""
        return self._limit.state

    def before_backward(self) -> None:
        """A backward pass is about to run. Raises UsageError if one has run outside ``step``."""
        if not self._armed and self._begun:  # gradients from before the Worker may stay
            self._refuse_strays()
        self._armed = True

    def take(
        self, contribution: Contribution, *, progress: int, window: int, reason: str
    ) -> tuple[float | None, str]:
        """The norm of the window's gradient if it was applied, else None; and why (``reason`` if it was).

        ``progress``: loader batches before it; ``window``: micro-batches of one.
        """
        norm, why = self._apply(contribution, self._training.rate_factor(progress, window))
        if contribution.weight > 0:
            self.scale = self.scale.after(finite=norm is not None)
        self._clear()
        return norm, why or reason

    def write(self, write: Callable[[], None]) -> None:
        """Let ``write`` change what the optimizer steps; 16-bit parameters follow their masters."""
        self._masters.step(write)

    def close(self) -> None:
        """Let go of model and optimizer."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._masters.close()
        self._accumulation.close()

    def _apply(self, contribution: Contribution, factor: float) -> tuple[float | None, str]:
        if contribution.weight == 0:
            return None, "nothing was computed in this window"
        self._divide(contribution.weight / contribution.unit)
        norm = clip_by_norm(self._parameters, self._limit.now)
        if not math.isfinite(norm):
            bad = first_non_finite(self._parameters)
            if bad is not None:
                name = self._training.trainables[bad].name
                return None, f"the gradient of {name} is not finite{self._where}"
            if self._limit.now is not None:
                return None, "the gradient's norm overflowed"
        self._limit.feed(norm)
        self._masters.step(partial(step, self._training, factor))
        return norm, ""

    def _divide(self, divisor: float) -> None:
        if divisor == 1.0:
            return
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.div_(divisor)

    def _clear(self) -> None:
        self._armed = False
        self._begun = True
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
