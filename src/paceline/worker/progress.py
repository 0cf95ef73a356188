"""Where a worker stands in a pass whose batches follow from the schedule alone.

Used where nobody hands batches out: one worker alone, and the collective plane, on which every
rank computes the same schedule. Knows no gradients and no other rank.
"""

from __future__ import annotations

from paceline.events import Left
from paceline.policy.schedule import batches_before, window_batches
from paceline.worker.plane import BucketTimes, Cut, Outcome, PassPlan, Position


def outcome_after(
    position: Position,
    *,
    batches: int,
    norm: float | None,
    reason: str,
    exchange_s: float,
    moved_bytes: int = 0,
    buckets: BucketTimes | None = None,
    flushed: int = 0,
    weight: float = 0.0,
    coding_s: float = 0.0,
) -> Outcome:
    """What became of a window of ``batches`` (all workers' together) that began at ``position``.

    ``norm``: None if it was not applied: something of its ``weight`` was not finite, or there was
    nothing. ``moved_bytes``: as many were sent as were received.
    """
    applied = norm is not None
    return Outcome(
        applied=applied,
        reason=reason,
        version=position.version + applied,
        clock=position.clock + 1,
        norm=norm,
        progress=position.progress + batches * applied,
        exchange_s=exchange_s,
        sent_bytes=moved_bytes,
        received_bytes=moved_bytes,
        buckets=buckets,
        flushed=flushed,
        skipped=not applied and weight > 0,
        coding_s=coding_s,
    )


def cut_at(
    position: Position,
    current: ScheduledPass | None,
    *,
    workers: int,
    state: bytes | None,
    limit: list[float] | None = None,
) -> Cut:
    """Where ``workers`` stand between two windows: all at the same clock. ``state``: the optimizer's;
    ``limit``: that of norms."""
    return Cut(
        version=position.version,
        progress=position.progress,
        clocks=dict.fromkeys(range(workers), position.clock),
        left=() if current is None else (current.left(),),
        state=state,
        limit=limit,
    )


class ScheduledPass:
    """One pass, seen from ``rank``. ``total`` may become known late, when a stream ends."""

    def __init__(self, plan: PassPlan, *, rank: int, world_size: int) -> None:
        self.plan = plan
        self.update = 0
        self._total = plan.total
        self._rank, self._world_size = (rank, world_size) if plan.split else (0, 1)
        self._leased_updates = 0
        self._outstanding: list[int] = []
        self._window = self._batches(0)

    def window(self) -> tuple[int, ...]:
        """This rank's batches of the current update; empty if it has none."""
        return self._window

    def following(self) -> tuple[int, ...]:
        """This rank's batches of the update after that, as far as it is known."""
        return self._batches(self.update + 1)

    def exhausted(self, update: float | None = None) -> bool:
        """Whether no worker has a batch of ``update`` (the current one), as far as ``total`` is known."""
        if self._total is None:
            return False
        update = self.update if update is None else update
        return update * self.plan.window * self._world_size >= self._total

    def computed(self, total: int | None) -> int:
        """How many batches the current window turned out to have, ``total`` being what is known now."""
        if total is not None:
            self._total = total
            self._window = self._batches(self.update)
        return len(self._window)

    def advance(self) -> None:
        """The current update is decided."""
        done = self._window
        self._outstanding = [batch for batch in self._outstanding if batch not in done]
        self.update += 1
        self._window = self._batches(self.update)

    def leases(self) -> list[int]:
        """Batches not named before, so that up to ``depth`` undecided ones are known ahead."""
        fresh: list[int] = []
        self._leased_updates = max(self._leased_updates, self.update)
        while len(self._outstanding) + len(fresh) < self.plan.depth:
            batches = self._batches(self._leased_updates)
            if not batches:
                break
            fresh += batches
            self._leased_updates += 1
        self._outstanding += fresh
        return fresh

    def left(self) -> Left:
        """The pass's undecided batches (of every worker, if each has data of its own)."""
        following = batches_before(
            world_size=self._world_size,
            window=self.plan.window,
            update=self.update,
            total=self._total,
        )
        return Left(owner=-1, next=following, total=self._total, returned=())

    def _batches(self, update: int) -> tuple[int, ...]:
        return window_batches(
            rank=self._rank,
            world_size=self._world_size,
            window=self.plan.window,
            update=update,
            total=self._total,
        )


class Passes:
    """A rank's passes, one after another: ``current`` is None between two. ``left``: the rank has broken
    off in this one and takes no more batches of it."""

    def __init__(self, *, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self.current: ScheduledPass | None = None
        self.left = False

    def open(self, plan: PassPlan) -> None:
        """Begin one."""
        self.left = False
        self.current = ScheduledPass(plan, rank=self._rank, world_size=self._world_size)

    def end(self) -> None:
        """It is over."""
        self.current = None

    def window(self) -> tuple[int, ...]:
        """The rank's batches of the current update; empty if it has none, or has broken off."""
        return () if self.current is None or self.left else self.current.window()

    def leases(self) -> list[int]:
        """What :meth:`ScheduledPass.leases` says, to who has not broken off."""
        return [] if self.current is None or self.left else self.current.leases()
