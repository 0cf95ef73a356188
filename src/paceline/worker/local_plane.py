"""One worker on its own: the user's optimizer, and not a bit different from a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch

from paceline.worker.optimizer_state import dump_state
from paceline.worker.own_step import OwnStep
from paceline.worker.plane import Contribution, Cut, Outcome, PassPlan, Position, Window
from paceline.worker.progress import Passes, cut_at, outcome_after
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
        self._passes = Passes(rank=0, world_size=1)

    def position(self) -> Position:
        return self._position

    def loss_scale(self) -> float:
        return self._own.scale.value

    def open_pass(self, plan: PassPlan) -> None:
        self._passes.open(plan)

    def leases(self) -> list[int]:
        return self._passes.leases()

    def next_window(self) -> Window | None:
        batches = self._passes.window()
        if not batches:
            self._passes.end()
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
        current = self._passes.current
        assert current is not None, "exchange outside a pass"
        began_s = self._training.clock_s()
        batches = current.computed(contribution.total)
        norm, reason = self._own.take(
            contribution, progress=self._position.progress, window=current.plan.window, reason="alone"
        )  # fmt: skip
        current.advance()
        if contribution.stop:
            self._passes.end()
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
        self._passes.end()

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
        yield cut_at(self._position, self._passes.current, workers=1, state=state, limit=limit)

    def sync_optimizer(self) -> None:
        return

    def close(self, reason: Literal["finished", "departed"]) -> None:
        self._passes.end()
        self._own.close()
