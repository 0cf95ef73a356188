"""One worker on its own: the user's optimizer, and not a bit different from a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch

from paceline.worker.optimizer_state import dump_state
from paceline.worker.own_step import OwnStep
from paceline.worker.plane import Contribution, Cut, Outcome, PassPlan, Position, Window
from paceline.worker.progress import ScheduledPass, cut_at, outcome_after
from paceline.worker.training import Training


class LocalPlane:
    """The plane of a single worker, under every strategy (they are all the same at N=1)."""

    name = "local"
    together = True
    account = None
    settled = True

    def __init__(self, training: Training) -> None:
        self._training = training
        self._own = OwnStep(training)
        self._position = Position(version=training.version, progress=training.progress)
        self._pass: ScheduledPass | None = None

    def position(self) -> Position:
        return self._position

    def loss_scale(self) -> float:
        return self._own.scale.value

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
            scale=self._own.scale.value,
        )

    def before_backward(self, *, last: bool) -> None:
        self._own.before_backward()

    def exchange(self, contribution: Contribution) -> Outcome:
        assert self._pass is not None, "exchange outside a pass"
        began_s = self._training.clock_s()
        batches = self._pass.computed(contribution.total)
        norm, reason = self._own.take(
            contribution, progress=self._position.progress, window=self._pass.plan.window, reason="alone"
        )  # fmt: skip
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
        limit = self._own.limit_state
        yield cut_at(self._position, self._pass, workers=1, state=state, limit=limit)

    def sync_optimizer(self) -> None:
        return

    def close(self, reason: Literal["finished", "departed"]) -> None:
        self._pass = None
        self._own.close()
