"""What workers hear of their pushes: the verdict, and the next window where nothing can come in between.

Answers of one fact are gathered first and sent together, when all of its orders are carried out.
Decides nothing and applies nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from paceline import events
from paceline.policy import Coordinator
from paceline.server.applying import Applied
from paceline.server.members import Group
from paceline.server.pulls import Pulls
from paceline.server.seats import Seat
from paceline.server.store import Store
from paceline.transport import messages

OVERFLOW = "the gradient's norm is not finite although every push was; the step is skipped"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the workers whose pushes were decided together are told."""

    applied: bool
    kind: str
    reason: str
    version: int
    progress: int
    norm: float | None = None
    started_s: float
    applied_s: float = 0.0


class Answers:
    """Answers that are due. ``reply(rank, message)`` sends one. ``pull``: feeds the policy a Pull of a rank
    whose next window would start at once. It is if nobody can come in between, or every worker is sent
    parameters (``at_once``), and for workers on other hosts: else they would be sent one version with the
    answer, and a newer one after their own request."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: Store,
        group: Group,
        reply: Callable[[int, messages.Message], None],
        pull: Callable[[int], None],
        *,
        at_once: bool,
        pulls: Pulls,
    ) -> None:
        self._coordinator = coordinator
        self._store = store
        self._group = group
        self._reply = reply
        self._pull = pull
        self._at_once = at_once
        self._pulls = pulls
        self._due: dict[int, messages.Decided] = {}

    def decide(self, seat: Seat, verdict: Verdict, lag: int) -> None:
        """``seat``'s push is decided: its worker reads the latest version from now on."""
        rank = seat.member.rank
        self._due[rank] = messages.Decided(
            applied=verdict.applied, kind=verdict.kind, reason=verdict.reason,
            version=verdict.version, clock=self._coordinator.clock(rank), lag=lag,
            norm=verdict.norm, leases=seat.take_leases(), progress=verdict.progress,
            waited_s=verdict.started_s - seat.asked_s, applied_s=verdict.applied_s,
            parameters_fd=self._store.give(rank), next=None,
        )  # fmt: skip

    def start(self, seat: Seat, order: events.Start, scale: float, now_s: float) -> None:
        """The next window (of this loss ``scale``), on its own or together with the answer that is due."""
        rank = seat.member.rank
        decided = self._due.pop(rank, None)
        waited_s = now_s - seat.asked_s if decided is None else 0.0
        started = messages.Started(
            clock=order.clock, version=order.version, batches=list(order.batches),
            leases=seat.take_leases(), progress=self._coordinator.progress,
            waited_s=waited_s, parameters_fd=self._store.give(rank), scale=scale,
        )  # fmt: skip
        started = self._pulls.started(rank, started, 1 if seat.wish is None else seat.wish.window)
        if decided is None:
            self._reply(rank, started)
        else:
            fd = started.parameters_fd
            self._reply(rank, msgspec.structs.replace(decided, parameters_fd=fd, next=started))

    def send(self) -> None:
        """Send what is due."""
        for rank in list(self._due):
            at_once = self._at_once or self._group.members[rank].host
            if at_once and self._coordinator.would_start(rank):
                self._pull(rank)
            if (decided := self._due.pop(rank, None)) is not None:
                self._reply(rank, self._pulls.decided(rank, decided))


def verdict_on(
    order: events.Update, outcome: Applied, started_s: float, applied_s: float
) -> Verdict:
    """The verdict on the pushes of an update. ``applied_s``: what applying it took."""
    applied = outcome.applied
    return Verdict(
        applied=applied,
        kind="" if applied else "non-finite",
        reason=order.reason if applied else OVERFLOW,
        version=order.version,
        progress=order.progress,
        norm=outcome.norm if applied else None,
        started_s=started_s,
        applied_s=applied_s,
    )
