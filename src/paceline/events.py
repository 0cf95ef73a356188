"""Facts that go into the policy and orders that come out: the whole conversation, as frozen values.

A driver (the real server, the simulator, a replay) tells the coordinator what happened and does
what it is ordered. Nothing here knows of processes, tensors, clocks on the wall, or how a decision
is made. Times are seconds on the driver's clock; batches are numbers of the pass's loader batches
(0, 1, 2, ... in the order a plain loop would read them).

A worker's life:  Join  (Request  (Pull -> Start -> Push -> Update | Drop)* )*  Leave
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paceline.values import lean

LeaveReason = Literal["finished", "departed", "dead"]


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """Which batches of a pass are undecided: ``returned`` (in order), then all from ``next`` on.

    ``owner``: whose they are, -1: everybody's. ``total``: batches of the pass, None while unknown.
    A later run numbers what is left from 0: see :meth:`number`.
    """

    owner: int
    next: int
    total: int | None
    returned: tuple[int, ...]

    @property
    def count(self) -> int | None:
        """How many are left; None while unknown."""
        return None if self.total is None else len(self.returned) + max(0, self.total - self.next)

    def number(self, place: int) -> int:
        """The batch that is number ``place`` of those left."""
        known = len(self.returned)
        return self.returned[place] if place < known else self.next + place - known

    def narrowed(self, inner: Left) -> Left:
        """Those of these that are ``inner``, whose numbers are places among these."""
        known = len(self.returned)
        returned = tuple(map(self.number, inner.returned)) + self.returned[inner.next :]
        total = self.total
        if total is None and inner.total is not None:
            total = self.next + max(0, inner.total - known)
        following = self.next + max(0, inner.next - known)
        return Left(owner=self.owner, next=following, total=total, returned=returned)

    def before(self, position: int) -> int:
        """How many of those left are among the pass's first ``position`` batches."""
        return sum(one < position for one in self.returned) + max(0, position - self.next)


# ---------------------------------------------------------------------------------------- facts


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Join:
    """A worker became a member. ``incarnation`` rises each time the same rank joins again."""

    time_s: float
    rank: int
    incarnation: int = 0


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Leave:
    """A worker is a member no longer.

    ``finished``: its script ended well (stays in the sum of weights). ``departed``: it left before
    the end, on purpose. ``dead``: its process ended. (Silence is judged by the policy, from Ticks.)
    Undecided leases are handed out again; where whole rounds are dealt, those of a finished one
    stay uncomputed, as if it had broken off.
    """

    time_s: float
    rank: int
    reason: LeaveReason


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A worker opens a pass over the data, or says more about the pass it is in.

    ``total``: loader batches in the pass, all workers together; None while unknown (a stream).
    A later Request of the same pass may lower it: batches >= total do not exist.
    ``window``: micro-batches per push (k). ``depth``: undecided leased batches the worker wants
    to hold, as deep as its loader prefetches (>= window); 0: it wants no more (``break``): a window
    that it is in must still be pushed. A Request for a later pass breaks off the open one.
    ``weight``: nominal weight (samples or tokens) of one whole window. ``split=False``: every
    worker has its own data, and batch numbers count per worker.
    """

    time_s: float
    rank: int
    pass_id: int
    total: int | None
    window: int
    depth: int
    weight: float
    split: bool = True


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Pull:
    """A worker's last push is decided and it asks to start another window."""

    time_s: float
    rank: int


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Push:
    """A worker's window is complete: its gradients are in the driver's hands.

    ``weight``: samples (or tokens) in the window, 0 if no step was taken. ``unit``: the weight
    by which each loss was divided before backward (w_ref). ``finite``: no NaN or inf inside.
    ``stop``: the worker asks all to end the pass. ``gradient_norm``: of the gradients as they lie there,
    None if not known or not finite; the policy never looks at it, a replay knows the push by it.
    """

    time_s: float
    rank: int
    weight: float
    unit: float
    finite: bool = True
    stop: bool = False
    gradient_norm: float | None = None


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """Time passed (overdue workers are evicted); with a ``rank``, just a sign of life from it."""

    time_s: float
    rank: int | None = None


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Save:
    """A worker, between two windows, is about to write a checkpoint."""

    time_s: float
    rank: int


Fact = Join | Leave | Request | Pull | Push | Tick | Save


# --------------------------------------------------------------------------------------- orders


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """These batches are this worker's to compute, until its push of them is decided.

    ``last``: the pass is over for everyone, every batch is decided; ``batches`` is then empty.
    """

    rank: int
    batches: tuple[int, ...]
    last: bool
    reason: str


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The worker may start the window that has this ``clock``, on ``version``, over ``batches``.

    ``batches`` are among those leased to it and may be fewer than a whole window at a pass's end.
    """

    rank: int
    clock: int
    version: int
    batches: tuple[int, ...]
    reason: str


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """Apply one optimizer step with the sum of these workers' pushes, in this order.

    gradient = sum over ``ranks`` / ``divisor``; the optimizer's learning rates are multiplied by
    ``lr_scale`` for this step only. ``version`` is the one the step makes. ``lags``: version lag
    of each push (version before the step minus version pulled). ``progress``: loader batches
    committed so far by all workers over all passes, this update included.
    """

    ranks: tuple[int, ...]
    clocks: tuple[int, ...]
    lags: tuple[int, ...]
    version: int
    divisor: float
    lr_scale: float
    weight: float
    progress: int
    reason: str


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Drop:
    """This worker's push is not applied; its clock ticks all the same. ``batches`` are lost."""

    rank: int
    clock: int
    batches: tuple[int, ...]
    kind: Literal["late", "non-finite", "empty"]
    reason: str


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """This rank is no longer a member: it died, left, or was silent for too long (evicted).

    ``clock``: where it stood. ``returned``: its undecided batches, which are handed out again
    (empty when they are nobody's to compute). Whatever it may still send is to be refused.
    """

    rank: int
    clock: int
    returned: tuple[int, ...]
    reason: str


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Halt:
    """The strategy cannot go on without ``rank``: stop every worker, naming it."""

    rank: int
    reason: str


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class WakeAt:
    """Feed a Tick at this time if nothing else happened before: a deadline may then have passed."""

    time_s: float
    reason: str


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """Give ``rank`` everything as it stands: a checkpoint in which no later update is.

    ``ranks`` and ``clocks``: the members. ``left``: the undecided batches of pass ``pass_id`` (one
    entry, or one a worker with data of its own); empty if no pass is open.
    """

    rank: int
    version: int
    progress: int
    ranks: tuple[int, ...]
    clocks: tuple[int, ...]
    pass_id: int
    left: tuple[Left, ...]
    reason: str


Order = Lease | Start | Update | Drop | Release | Halt | WakeAt | Cut
