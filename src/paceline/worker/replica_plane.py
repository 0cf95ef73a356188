"""Local SGD and DiLoCo: every rank trains a replica of its own, and they meet every so many windows.

Between two exchanges a rank knows no other: it steps the user's optimizer with its own gradients. A
round is ``windows`` windows of the schedule, the last one of a pass perhaps shorter, and a rank enters
its exchange once it has no window of the round left: so all ranks enter equally many, by counting.
There they vote (who has computed what, who stops, who has nothing left) and then average; all that is
decided is read from the votes, which are equal everywhere. Under ``local:inf`` they only vote.
Where parameters meet in fragments a round is that of one of them, and the pass's last one is of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, Protocol

import torch

from paceline.strategies import fragments_of, windows_apart
from paceline.worker.averaging import Average, Drift, Sums
from paceline.worker.joining import Broadcasts, broadcast
from paceline.worker.optimizer_state import held_by
from paceline.worker.own_step import OwnStep
from paceline.worker.plane import Contribution, Cut, Outcome, PassPlan, Position, Window
from paceline.worker.progress import Passes, ScheduledPass, cut_at
from paceline.worker.replica_round import Round
from paceline.worker.replica_state import Start, begin_alike, own_state
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
        self._in_pass = session.world_size
        self._passes = Passes(rank=session.rank, world_size=session.world_size)
        self._fragments = fragments_of(training.strategy)
        self._round = Round(self._fragments)
        start = begin_alike(training, group, rank=session.rank, fragments=self._fragments)
        self._own = OwnStep(training, where=f" on rank {session.rank}")
        held = held_by(training.optimizer, training.trainables)
        self._average = Average(
            [one.detach() for one in held], group, training.strategy, self._own.write
        )
        self._go_on(start)
        self.drift: Drift | None = None
        """As the pass ended, before the replicas became one; None if nothing was applied since they were."""

    def _go_on(self, start: Start) -> None:
        if start.outer:
            self._average.take_momentum(start.outer)
        if start.values is not None:
            self._average.take_replica(start.values)
        self._round.go_on(start.turn, start.weights)

    @property
    def settled(self) -> bool:
        return self._round.windows == 0 and not self._never

    def position(self) -> Position:
        return self._position

    def loss_scale(self) -> float:
        return self._own.scale.value

    def open_pass(self, plan: PassPlan) -> None:
        self._round.stop = False
        self.drift = None
        self._in_pass = self._session.world_size if plan.sharing is None else plan.sharing
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
                    exchanges=self._exchanged_after(current),
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
        self._round.count(contribution, batches, applied=norm is not None)
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
        """Between two exchanges that is what the last ones have left: this replica is nobody else's."""
        apart = not self._never and not (self.settled and self._round.whole)
        return self._average.showing(self._training.parameters) if apart else nullcontext()

    def gather(self, tag: str, payload: bytes) -> list[bytes]:
        return self._session.gather(tag, payload)

    def broadcast(self, tensors: list[torch.Tensor]) -> None:
        broadcast(self._group, tensors)

    def hand_in(self, pass_id: int, number: int, part: bytes) -> dict[int, bytes] | None:
        return self._session.hand_in(pass_id, number, part, together=True)

    def own_state(self) -> dict[str, Any]:
        return {
            "limit": self._own.limit_state,
            **own_state(self._training, self._average, self._round),
        }

    @contextmanager
    def cut(self) -> Iterator[Cut]:
        assert self.settled, "nobody knows between two exchanges what was committed"
        workers = self._session.world_size
        with self.latest():
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

    def _exchanged_after(self, current: ScheduledPass) -> float:
        """What part of the parameters meets once this rank has computed the current window."""
        following = current.update + 1
        if following % self._windows and current.following():
            return 0.0
        next_round = (
            -(-following // self._windows) * self._windows if not self._never else following
        )
        return 1.0 if current.exhausted(next_round) else 1 / self._fragments

    def _round_is_over(self, current: ScheduledPass) -> bool:
        """Whether this rank has no window left in it. Where nobody meets it, it may stop for itself."""
        done = current.update % self._windows == 0 or not current.window()
        return done or (self._never and self._round.stop)

    def _estimate(self, current: ScheduledPass) -> Position:
        """Where the group stands if all ranks that are still in the pass compute what this one has: so
        they agree on learning rates between two exchanges. The next one says what was committed indeed."""
        settled, windows = self._settled, self._round.windows
        return Position(
            version=settled.version + self._round.updates,
            clock=settled.clock + windows,
            progress=settled.progress + self._in_pass * windows * current.plan.window,
            estimated=True,
        )

    def _meet(self, current: ScheduledPass) -> tuple[float, int]:
        """Enter the round's exchange: how long the others were waited for, in seconds, and what this
        rank sent, in bytes."""
        if not self._round.whole and not self._average.finite():
            self._round.lose()
        began_s = self._training.clock_s()
        agreed = self._agree(self._round.vote(over=not self._passes.window()))
        wait_s = self._training.clock_s() - began_s
        due = self._round.due(ended=agreed.ended)
        moved_bytes = ballot_bytes(self._session.world_size, fragments=self._fragments)
        if any(any(agreed.shares[fragment]) for fragment in due):
            moved_bytes += self._look(agreed, due)
        if not self._never:
            self._step(agreed, due)
            self._average.put(range(self._fragments) if self._round.whole else due)
        self._round.met(due)
        self._settle(agreed, current)
        return wait_s, moved_bytes

    def _agree(self, vote: Vote) -> Agreed:
        rank, world_size = self._session.rank, self._session.world_size
        numbers = ballot(vote, rank=rank, world_size=world_size)
        wire = torch.tensor(numbers, dtype=torch.float64, device=self._group.device)
        self._group.finish(self._group.start_sum(wire))
        return tally(wire.tolist(), fragments=self._fragments)

    def _look(self, agreed: Agreed, due: Sequence[int]) -> int:
        """Let the mean of what is ``due`` be known: the bytes sent for it. All ranks enter it in the same
        order, whatever each has trained."""
        average, rank = self._average, self._session.rank
        average.take(due)
        for fragment in due:
            average.meet(fragment, agreed.shares[fragment][rank])
        if agreed.ended:
            self.drift = average.gap()
        return sum(map(average.sent_bytes, due))

    def _step(self, agreed: Agreed, due: Sequence[int]) -> None:
        """Where nobody has trained anything the common parameters stay."""
        for fragment in due:
            if any(agreed.shares[fragment]):
                self._average.step(fragment)

    def _settle(self, agreed: Agreed, current: ScheduledPass) -> None:
        """The round is over, on every rank after the same update."""
        while current.update % self._windows and not self._never and not current.exhausted():
            current.advance()
        self._settled = self._position = Position(
            version=self._settled.version + agreed.updates,
            clock=self._settled.clock + agreed.windows,
            progress=self._settled.progress + agreed.batches,
        )
        self._in_pass = agreed.going_on
        if agreed.ended:
            self._passes.end()
