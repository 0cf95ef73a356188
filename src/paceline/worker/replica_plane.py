"""Local SGD and DiLoCo: every rank trains a replica of its own, and they meet every so many windows.

Between two exchanges a rank knows no other: it steps the user's optimizer with its own gradients. A
round is ``windows`` windows of the schedule, the last one of a pass perhaps shorter, and a rank enters
its exchange once it has no window of the round left: so all ranks enter equally many, by counting.
There they vote (who has computed what, who stops, who has nothing left) and then average; all that is
decided is read from the votes, which are equal everywhere. Under ``local:inf`` they only vote.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, Protocol

import torch

from paceline.strategies import windows_apart
from paceline.worker.averaging import OUTER_MOMENTUM, Average, Drift, Sums, taken_momentum
from paceline.worker.joining import Broadcasts, broadcast, share_optimizer
from paceline.worker.optimizer_state import held_by
from paceline.worker.own_step import OwnStep
from paceline.worker.plane import Contribution, Cut, Outcome, PassPlan, Position, Window
from paceline.worker.progress import Passes, ScheduledPass, cut_at
from paceline.worker.round_vote import Agreed, Vote, ballot, ballot_bytes, tally
from paceline.worker.session import Session
from paceline.worker.training import Training


class Meeting(Sums, Broadcasts, Protocol):
    """Where replicas meet: :class:`paceline.transport.collective.Group`."""

    def close(self, *, abandon: bool) -> None:
        """Leave it; with ``abandon``, where a peer may not answer."""


class ReplicaPlane:
    """The plane of ``local:H`` and ``diloco:H``."""

    name = "replicas"
    together = True
    account = None

    def __init__(self, session: Session, training: Training, group: Meeting) -> None:
        self._session = session
        self._training = training
        self._group = group
        self._windows = windows_apart(training.strategy)
        self._never = math.isinf(self._windows)
        self._settled = Position(version=training.version, progress=training.progress)
        self._position = self._settled
        self._scheduled = 0
        self._passes = Passes(rank=session.rank, world_size=session.world_size)
        self._stop = False
        self._begin_round()
        outer = self._begin_alike()
        self._own = OwnStep(training, where=f" on rank {session.rank}")
        held = held_by(training.optimizer, training.trainables)
        self._average = Average(
            [one.detach() for one in held], group, training.strategy, self._own.write
        )
        if outer is not None:
            self._average.take_momentum(outer)
        self.drift: Drift | None = None
        """As the pass ended, before the replicas became one; None if nothing was applied since they were."""

    def _begin_alike(self) -> list[torch.Tensor] | None:
        """Everyone has rank 0's parameters, and its outer momentum, if any, is returned. The optimizer's
        state stays each rank's own where it comes from a checkpoint."""
        training, rank = self._training, self._session.rank
        broadcast(self._group, [parameter.data for parameter in training.parameters])
        outer = taken_momentum(training.optimizer, training.trainables)
        if not training.version:
            share_optimizer(self._group, training, root=rank == 0)
        known = torch.tensor(
            [float(outer is not None)], dtype=torch.float64, device=self._group.device
        )
        self._group.broadcast(known)
        if not known.item():
            return None
        if outer is None:  # a rank that the checkpoint did not have
            outer = [torch.zeros_like(one) for one in training.parameters]
        broadcast(self._group, outer)
        return outer

    @property
    def settled(self) -> bool:
        return self._had == 0 and not self._never

    def position(self) -> Position:
        return self._position

    def loss_scale(self) -> float:
        return self._own.scale.value

    def open_pass(self, plan: PassPlan) -> None:
        self._stop = False
        self.drift = None
        self._scheduled = 0
        self._passes.open(plan)

    def leases(self) -> list[int]:
        return self._passes.leases()

    def next_window(self) -> Window | None:
        """The next window, after meeting the others as often as they have windows and this rank none."""
        self._session.check()
        while (current := self._passes.current) is not None:
            if batches := self._passes.window():
                return Window(
                    clock=self._position.clock,
                    version=self._position.version,
                    batches=batches,
                    unit=None,
                    scale=self._own.scale.value,
                    exchanges=self._ends_round(current),
                )
            self._meet(current)
        return None

    def before_backward(self, *, last: bool) -> None:
        self._own.before_backward()

    def exchange(self, contribution: Contribution) -> Outcome:
        current, before = self._passes.current, self._position
        assert current is not None, "exchange outside a pass"
        began_s = self._training.clock_s()
        batches = current.computed(contribution.total)
        norm, reason = self._own.take(
            contribution, progress=before.progress, window=current.plan.window, reason="this rank's own step"
        )  # fmt: skip
        self._count(contribution, batches, applied=norm is not None)
        current.advance()
        wait_s, moved_bytes = 0.0, 0
        if self._round_is_over(current):
            wait_s, moved_bytes = self._meet(current)
        else:
            self._position = self._estimate(current)
        return Outcome(
            applied=norm is not None,
            reason=reason,
            version=self._position.version,
            clock=self._position.clock,
            norm=norm,
            progress=self._position.progress,
            wait_s=wait_s,
            exchange_s=self._training.clock_s() - began_s - wait_s,
            sent_bytes=moved_bytes,
            received_bytes=moved_bytes,
            skipped=norm is None and contribution.weight > 0,
        )

    def end_pass_early(self) -> None:
        self._passes.left = True

    def latest(self) -> AbstractContextManager[None]:
        """Between two exchanges that is what the last one has left: this replica is nobody else's."""
        apart = self._had > 0 and not self._never
        return self._average.showing(self._training.parameters) if apart else nullcontext()

    def gather(self, tag: str, payload: bytes) -> list[bytes]:
        return self._session.gather(tag, payload)

    def broadcast(self, tensors: list[torch.Tensor]) -> None:
        broadcast(self._group, tensors)

    def hand_in(self, pass_id: int, number: int, part: bytes) -> dict[int, bytes] | None:
        return self._session.hand_in(pass_id, number, part, together=True)

    def own_state(self) -> dict[str, Any]:
        """The optimizer's state, which is each rank's own; with it the outer one's, which all share."""
        trainables = self._training.trainables
        held = held_by(self._training.optimizer, trainables)
        states = [dict(self._training.optimizer.state.get(one, {})) for one in held]
        for state, outer in zip(states, self._average.momentum() or [], strict=False):
            state[OUTER_MOMENTUM] = outer
        named = {one.name: state for one, state in zip(trainables, states, strict=True)}
        return {"limit": self._own.limit_state, "optimizer": named}

    @contextmanager
    def cut(self) -> Iterator[Cut]:
        assert self.settled, "replicas have no state in common between two exchanges"
        workers = self._session.world_size
        yield cut_at(self._position, self._passes.current, workers=workers, state=None)

    def sync_optimizer(self) -> None:
        return

    def close(self, reason: Literal["finished", "departed"]) -> None:
        self._passes.end()
        self._own.close()
        try:
            self._session.close(reason)
        finally:
            self._group.close(abandon=reason != "finished" or self._session.stopped)

    # ------------------------------------------------------------------------------- the round

    def _begin_round(self) -> None:
        self._had = self._updates = self._batches = 0
        self._weight = 0.0

    def _count(self, contribution: Contribution, batches: int, *, applied: bool) -> None:
        """What this rank has to say at the exchange."""
        self._stop = self._stop or contribution.stop
        self._had += 1
        if applied:
            self._updates += 1
            self._batches += batches
            self._weight += contribution.weight

    def _ends_round(self, current: ScheduledPass) -> bool:
        """Whether the current window is this rank's last one of the round, as far as it is known."""
        return (current.update + 1) % self._windows == 0 or not current.following()

    def _round_is_over(self, current: ScheduledPass) -> bool:
        """Whether this rank has no window left in it. Where nobody meets it, it may stop for itself."""
        done = current.update % self._windows == 0 or not current.window()
        return done or (self._never and self._stop)

    def _estimate(self, current: ScheduledPass) -> Position:
        """Where the group stands if all ranks compute what the schedule gives them: so ranks agree on
        learning rates between two exchanges. The next one says what was committed indeed."""
        settled = self._settled
        return Position(
            version=settled.version + self._updates,
            clock=settled.clock + self._had,
            progress=settled.progress + self._given_out(current) - self._scheduled,
        )

    def _given_out(self, current: ScheduledPass) -> int:
        """Loader batches of the pass, of all ranks, before the current update."""
        own = 1 if current.plan.split else self._session.world_size
        return own * current.left().next

    def _meet(self, current: ScheduledPass) -> tuple[float, int]:
        """Enter the round's exchange: how long the others were waited for, in seconds, and what this
        rank sent, in bytes."""
        lost = self._weight > 0 and not math.isfinite(self._average.measure())
        vote = Vote(
            weight=0.0 if lost else self._weight,
            windows=self._had,
            updates=self._updates,
            batches=self._batches,
            stop=self._stop,
            over=not self._passes.window(),
        )
        began_s = self._training.clock_s()
        agreed = self._agree(vote)
        wait_s = self._training.clock_s() - began_s
        moved_bytes = ballot_bytes(self._session.world_size)
        if any(agreed.shares):
            self._join(agreed)
            moved_bytes += self._average.sent_bytes
        elif not self._never:
            self._average.put()
        self._settle(agreed, current)
        return wait_s, moved_bytes

    def _agree(self, vote: Vote) -> Agreed:
        rank, world_size = self._session.rank, self._session.world_size
        numbers = ballot(vote, rank=rank, world_size=world_size)
        wire = torch.tensor(numbers, dtype=torch.float64, device=self._group.device)
        self._group.finish(self._group.start_sum(wire))
        return tally(wire.tolist())

    def _join(self, agreed: Agreed) -> None:
        """Become one with the others; or see how far they are, where replicas never do."""
        average = self._average
        average.meet(agreed.shares[self._session.rank])
        if agreed.ended:
            self.drift = average.gap()
        if not self._never:
            average.step()
            average.put()

    def _settle(self, agreed: Agreed, current: ScheduledPass) -> None:
        """The round is over, on every rank after the same update."""
        while current.update % self._windows and not self._never and not current.exhausted():
            current.advance()
        self._settled = self._position = Position(
            version=self._settled.version + agreed.updates,
            clock=self._settled.clock + agreed.windows,
            progress=self._settled.progress + agreed.batches,
        )
        self._scheduled = self._given_out(current)
        self._begin_round()
        if agreed.ended:
            self._passes.end()
