"""What a Worker needs from whatever joins the workers: a protocol with four implementations.

``local`` (one worker: the user's own optimizer, nothing else), ``collective`` (every rank evaluates
the same schedule and enters the same collectives), ``server`` (a coordinator decides), ``replicas``
(every rank trains its own model and meets the others now and then). The Worker calls these in the
order  open_pass (next_window exchange)* next_window -> None  and never looks behind them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from paceline.events import Left
from paceline.values import lean
from paceline.worker.compression_account import Account


@dataclass(frozen=True, kw_only=True, slots=True)
class PassPlan:
    """A pass over the data, as agreed by all ranks.

    ``total``: loader batches of all workers together, None while unknown. ``window``: micro-batches
    per push. ``depth``: batches this worker wants leased ahead (>= window). ``weight``: nominal
    weight of one window; ``unit``: nominal weight of one micro-batch, equal on all ranks. ``sharing``: how
    many workers have batches in it, None if that is not known to be less than all.
    """

    pass_id: int
    total: int | None
    window: int
    depth: int
    weight: float
    unit: float
    split: bool = True
    sharing: int | None = None


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Permission to compute ``batches`` as window number ``clock`` on parameters of ``version``.

    ``unit``: divide each micro-batch's weight by this before multiplying its loss; None: by the
    window's first weight (the push stands alone, so a window of one needs no factor at all).
    ``scale``: the loss scale, by which losses are multiplied as well. ``exchanges``: what part of a whole
    exchange this worker has with the others at its end (0: none), as far as that is known.
    """

    clock: int
    version: int
    batches: tuple[int, ...]
    unit: float | None
    gate_s: float = 0.0
    pull_s: float = 0.0
    scale: float = 1.0
    exchanges: float = 1.0


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Contribution:
    """A finished window. ``weight`` 0: nothing was computed. ``unit``: a loss of weight w was
    multiplied by w / unit, loss scale included, so a mean is the sum divided by sum(w) / unit.

    ``total``: set once the worker has seen where a stream ends. ``stop``: the user's flag.
    """

    weight: float
    unit: float
    stop: bool = False
    total: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketTimes:
    """When a window's last backward began, and when each bucket of gradients was ready and (under a
    collective) its sum was there; in the order in which they are sent."""

    began_s: float
    ready_s: tuple[float, ...]
    done_s: tuple[float, ...] = ()


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of a window: returned (in public form) by ``Worker.step``.

    ``version``: of the parameters once this window was decided. ``norm``: of the gradient that was
    applied. ``weight``: total weight of that update. ``lag``: version lag of this push. ``flushed``:
    this worker's gradient values that were too small for the wire's type. ``skipped``: it was not
    applied because a number in it, or in another worker's of its round, was not finite. ``coding_s``: of
    the exchange, and of the pull before it, encoding and decoding.
    """

    applied: bool
    reason: str
    version: int
    clock: int
    norm: float | None
    lag: int = 0
    progress: int = 0
    wait_s: float = 0.0
    exchange_s: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    buckets: BucketTimes | None = None
    flushed: int = 0
    skipped: bool = False
    coding_s: float = 0.0

    @property
    def position(self) -> Position:
        """Where the group stands now."""
        return Position(version=self.version, clock=self.clock, progress=self.progress)


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """Where the group stands: ``progress`` counts loader batches committed by all workers, or, if it is
    ``estimated``, those that are unless one of them falls behind: the next meeting will tell."""

    version: int = 0
    clock: int = 0
    progress: int = 0
    estimated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """Where the group stands, for a checkpoint. ``clocks``: of the live workers.

    ``left``: the undecided batches of the open pass (one entry for all workers, or one each if they
    have data of their own); empty if none is open. ``state``: the optimizer's, as
    :func:`paceline.worker.optimizer_state.dump_state` makes it. ``limit``: the state of the limit on
    norms (:mod:`paceline.gradients.norm_limit`), None if it has none.
    """

    version: int
    progress: int
    clocks: dict[int, int]
    left: tuple[Left, ...]
    state: bytes | None
    limit: list[float] | None = None


class Plane(Protocol):
    """How gradients become parameters. All calls come from the worker's main thread."""

    name: str
    """``"local"``, ``"allreduce"``, ``"server"`` or ``"replicas"``."""

    together: bool
    """Whether every live worker is in every round: nothing moves while one is between two windows."""

    @property
    def account(self) -> Account | None:
        """What compression saved on this rank so far; None if nothing is compressed."""

    @property
    def settled(self) -> bool:
        """Whether workers know what they have in common (:meth:`cut` shows it; after a pass the model is
        that): not where each trains a model of its own, between exchanges."""

    def position(self) -> Position:
        """The last known position of the group."""

    def loss_scale(self) -> float:
        """Of the window that is open; between two, of the next one as far as it is known."""

    def open_pass(self, plan: PassPlan) -> None:
        """Begin a pass."""

    def leases(self) -> list[int]:
        """Batches newly leased since the last call, for the loader to prefetch (never blocks)."""

    def next_window(self) -> Window | None:
        """Block until another window may start; None when the pass is over for everyone."""

    def before_backward(self, *, last: bool) -> None:
        """A micro-batch's backward is about to run (``last``: the window's last one)."""

    def exchange(self, contribution: Contribution) -> Outcome:
        """Hand the window in and block until it is decided (and, if joint, applied)."""

    def end_pass_early(self) -> None:
        """This worker takes no more batches of the pass (``break``). Does not block for long."""

    def latest(self) -> AbstractContextManager[None]:
        """Inside, the model holds the latest whole version; then what it held. Never collective."""

    def gather(self, tag: str, payload: bytes) -> list[bytes]:
        """Small payloads of all live workers, in rank order; every live worker must call it."""

    def broadcast(self, tensors: list[torch.Tensor]) -> None:
        """Overwrite ``tensors`` (buffers, frozen parameters) with rank 0's; every rank calls it."""

    def hand_in(self, pass_id: int, number: int, part: bytes) -> dict[int, bytes] | None:
        """Hand in this worker's part of a checkpoint; all parts by rank if it is to write it.

        That is the last live worker that hands in where they are ``together``, else the first.
        Does not wait for others.
        """

    def own_state(self) -> dict[str, Any]:
        """What this worker alone keeps of how it trains, for its part of a checkpoint; often nothing."""

    def cut(self) -> AbstractContextManager[Cut]:
        """Where the group stands now; inside, the model holds the parameters of that version."""

    def sync_optimizer(self) -> None:
        """Make the user's optimizer hold the state that training has reached (one-sided)."""

    def close(self, reason: Literal["finished", "departed"]) -> None:
        """Leave the group. The model and the user's optimizer hold what training has reached."""
