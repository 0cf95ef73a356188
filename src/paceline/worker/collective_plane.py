"""Synchronous training by collectives: every rank runs the same schedule and the user's optimizer.

Each window costs one sum of the gradients and one small sum of votes, entered by every rank,
whatever happened to it: what a rank does not have, it brings as zeros. Everything that decides
(who has data, what was bad, who stops) is read from the summed votes, which are equal everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch

from paceline.gradients.layout import FlatLayout
from paceline.gradients.norm_limit import norm_limit
from paceline.gradients.norms import clip_by_norm, first_non_finite, needs_no_clipping
from paceline.gradients.precision.accumulation import Accumulation
from paceline.gradients.precision.layouts import gradients_of
from paceline.gradients.precision.masters import Masters
from paceline.gradients.precision.wire import NarrowSums, Traffic
from paceline.worker.compressed_reducer import CompressedReducer, Own
from paceline.worker.compression_account import Account
from paceline.worker.joining import broadcast, join, share_optimizer
from paceline.worker.manifest import Trainable, flat_layout, in_models_order
from paceline.worker.meetings import Meetings
from paceline.worker.optimizer_state import dump_state, step
from paceline.worker.plane import Contribution, Cut, Outcome, PassPlan, Position, Window
from paceline.worker.progress import Passes, ScheduledPass, cut_at, outcome_after
from paceline.worker.reducer import Reduced, Reducer
from paceline.worker.session import Session
from paceline.worker.training import Training
from paceline.worker.vote import Tally, Vote, ballot, ballot_size, tally


class CollectivePlane:
    """The plane of ``sync:allreduce``."""

    name = "allreduce"
    together = True
    settled = True

    def __init__(self, session: Session, training: Training) -> None:
        self._session = session
        self._training = training
        self._parameters = training.parameters
        self._position = Position(version=training.version, progress=training.progress)
        self._scale = training.precision.scale
        self._limit = norm_limit(training.clip_norm, training.limit)
        self._passes = Passes(rank=session.rank, world_size=session.world_size)
        self._meetings: Meetings | None = None
        self._accumulation = Accumulation(training.parameters, training.precision.accumulate)
        self._group = join(session, self._parameters[0].device)
        reduce = training.precision.reduce
        self._narrow = NarrowSums(self._group, reduce) if reduce is not None else None
        order = in_models_order(training.model, training.trainables)
        layout = gradients_of(flat_layout(training.trainables, order))
        self._compressed = self._compressing(layout)
        self._reducer = self._compressed or Reducer(
            self._narrow or self._group,
            layout,
            self._parameters,
            ballot_size=ballot_size(session.world_size, len(self._parameters)),
            clock_s=training.clock_s,
            ballot_alone=self._narrow is not None,
        )
        self._buffer = self._reducer.buffer
        self.broadcast([parameter.data for parameter in self._parameters])
        share_optimizer(self._group, training, root=session.rank == 0)
        self._masters = Masters(training.optimizer, training.parameters)

    def _compressing(self, layout: FlatLayout) -> CompressedReducer | None:
        training = self._training
        if training.compress is None:
            return None
        return CompressedReducer(
            self._group, layout, self._parameters, training.compress,
            kept=training.compressed, world_size=self._session.world_size, clock_s=training.clock_s,
        )  # fmt: skip

    def hold(self, meetings: Meetings) -> None:
        """From the next window on, ranks may meet in the midst of forward and backward."""
        self._meetings = meetings

    @property
    def account(self) -> Account | None:
        return None if self._compressed is None else self._compressed.account

    def position(self) -> Position:
        return self._position

    def loss_scale(self) -> float:
        return self._scale.value

    def open_pass(self, plan: PassPlan) -> None:
        self._passes.open(plan)

    def leases(self) -> list[int]:
        return self._passes.leases()

    def next_window(self) -> Window | None:
        """The next window, after taking part with nothing in those in which this rank has none."""
        self._session.check()
        while (current := self._passes.current) is not None and not self._agreed_end(current):
            if batches := self._passes.window():
                if self._meetings is not None:
                    self._meetings.begin()
                return Window(
                    clock=self._position.clock,
                    version=self._position.version,
                    batches=batches,
                    unit=self._unit(current.plan),
                    scale=self._scale.value,
                )
            nothing = Contribution(weight=0.0, unit=self._unit(current.plan))
            self._round(current, nothing, 0)
        self._passes.end()
        return None

    def before_backward(self, *, last: bool) -> None:
        self._reducer.before_backward(last=last)

    def exchange(self, contribution: Contribution) -> Outcome:
        current = self._passes.current
        assert current is not None, "exchange outside a pass"
        return self._round(current, contribution, current.computed(contribution.total))

    def end_pass_early(self) -> None:
        self._passes.left = True

    def latest(self) -> AbstractContextManager[None]:
        return nullcontext()  # the model always holds it

    def gather(self, tag: str, payload: bytes) -> list[bytes]:
        return self._session.gather(tag, payload)

    def broadcast(self, tensors: list[torch.Tensor]) -> None:
        broadcast(self._group, tensors)

    def hand_in(self, pass_id: int, number: int, part: bytes) -> dict[int, bytes] | None:
        return self._session.hand_in(pass_id, number, part, together=True)

    def own_state(self) -> dict[str, Any]:
        return {} if self._compressed is None else self._compressed.state()

    @contextmanager
    def cut(self) -> Iterator[Cut]:
        state = dump_state(self._training.optimizer, self._training.trainables)
        workers, limit = self._session.world_size, self._limit.state
        yield cut_at(
            self._position, self._passes.current, workers=workers, state=state, limit=limit
        )

    def sync_optimizer(self) -> None:
        return

    def close(self, reason: Literal["finished", "departed"]) -> None:
        self._passes.end()
        self._buffer.close()
        self._masters.close()
        self._accumulation.close()
        try:
            self._session.close(reason)
        finally:
            self._group.close(abandon=reason != "finished" or self._session.stopped)

    def _unit(self, plan: PassPlan) -> float:
        """The nominal weight of a whole update. Losses are scaled by their shares of it, so that the
        usual sum of gradients is their mean as it is, without another pass over them."""
        return plan.unit * plan.window * self._session.world_size

    def _agreed_end(self, current: ScheduledPass) -> bool:
        """Whether all ranks know the pass to be over, by a total that is the same for all."""
        return current.plan.split and current.plan.total is not None and current.exhausted()

    def _round(self, current: ScheduledPass, contribution: Contribution, batches: int) -> Outcome:
        """One window of all ranks: sum gradients and votes, then apply or skip, alike everywhere."""
        began_s = self._training.clock_s()
        if self._meetings is not None:
            self._meetings.end()
        reduced = self._reduce(contribution, batches)
        result = tally(reduced.ballots, world_size=self._session.world_size)
        unit = self._unit(current.plan) / self._scale.value
        factor = self._training.rate_factor(self._position.progress, current.plan.window)
        norm, reason = self._apply(result, reduced.norm, result.weight / unit, factor)
        if self._compressed is not None:
            self._compressed.settle(norm is not None)
        if result.weight > 0 and not result.broken:
            self._scale = self._scale.after(finite=norm is not None)
        self._buffer.clear()
        current.advance()
        traffic = self._traffic()
        if result.batches == 0 or result.stop:
            self._passes.end()
        outcome = outcome_after(
            self._position,
            batches=result.batches,
            norm=norm,
            reason=reason,
            exchange_s=self._training.clock_s() - began_s,
            moved_bytes=traffic.sent_bytes,
            buckets=reduced.times,
            flushed=traffic.flushed,
            weight=result.weight,
            coding_s=0.0 if self.account is None else self.account.take_coding_s(),
        )
        self._position = outcome.position
        return outcome

    def _traffic(self) -> Traffic:
        if self._narrow is not None:
            return self._narrow.take_traffic()
        return Traffic(sent_bytes=self._reducer.sent_bytes, flushed=0)

    def _reduce(self, contribution: Contribution, batches: int) -> Reduced:
        """The ranks' votes together; the sum of their gradients is in the buffer then."""
        if contribution.weight == 0:
            self._buffer.discard()
        broken = contribution.weight == 0 and self._buffer.ready > 0
        self._buffer.flush(fill_unused=True)
        vote = Vote(
            weight=contribution.weight,
            batches=batches,
            bad=self._buffer.first_bad(),
            stop=contribution.stop,
            used=self._buffer.used(),
            broken=broken,
        )
        session = self._session
        if self._compressed is not None:
            self._compressed.describe(self._own(contribution))
        self._reducer.send(ballot(vote, rank=session.rank, world_size=session.world_size))
        return self._reducer.finish()

    def _own(self, contribution: Contribution) -> Own:
        current = self._passes.current
        assert current is not None
        return Own(
            computed=contribution.weight > 0, unit=contribution.unit, turn=self._position.version,
            progress=self._position.progress, window=current.plan.window,
        )  # fmt: skip

    def _apply(
        self, result: Tally, norm_of_sum: float, divisor: float, factor: float
    ) -> tuple[float | None, str]:
        """The norm of the gradient if it was applied, else None; and why. Equal on all ranks."""
        if result.broken or result.bad:
            return None, _blame(result, self._training.trainables)
        if result.weight == 0:
            return None, "nothing was computed in this window"
        self._buffer.divide(divisor)
        self._buffer.show(result.used)
        norm, clip_norm = norm_of_sum / divisor, self._limit.now
        if not needs_no_clipping(norm, clip_norm):
            norm = clip_by_norm(self._parameters, clip_norm)
        if not math.isfinite(norm):
            bad = first_non_finite(self._parameters)
            if bad is not None:
                return (
                    None,
                    f"the summed gradient of {self._training.trainables[bad].name} overflowed",
                )
            if clip_norm is not None:
                return None, "the gradient's norm overflowed"
        self._limit.feed(norm)
        self._masters.step(partial(step, self._training, factor))
        return norm, "all ranks"


def _blame(result: Tally, trainables: list[Trainable]) -> str:
    if result.broken:
        return f"a backward pass broke off on rank {result.broken[0]}, half sent"
    rank, place = result.bad[0]
    return f"the gradient of {trainables[place].name} is not finite on rank {rank}"
