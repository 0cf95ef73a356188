"""Training by the parameter server: its coordinator decides, its shards apply.

Gradients are accumulated in a region of memory that the server maps too; the model's parameters are
views of the server's memory. Messages say whose turn it is: between a push and its reply the region
is the server's, and parameters are read only as long as a reply has allowed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Literal

import torch

from paceline.gradients.layout import FlatLayout
from paceline.gradients.precision.accumulation import Accumulation
from paceline.gradients.precision.layouts import gradients_of
from paceline.policy.grouping import Groups
from paceline.strategies import is_dealt, is_joint, needs_everyone
from paceline.transport.messages import (
    CutTaken,
    Ended,
    Fetch,
    Open,
    Opened,
    OpenPass,
    OptimizerSpec,
    Push,
    Read,
    Ready,
    Started,
    TakeCut,
)
from paceline.worker.compressing import compressing
from paceline.worker.compression_account import Account
from paceline.worker.manifest import flat_layout, hyperparameters, tensors_of
from paceline.worker.optimizer_state import dump_state, load_state, narrow_state
from paceline.worker.packing import pack, unpack
from paceline.worker.payload_ways import Parameters, ReceivedParameters, Way, way_of
from paceline.worker.plane import Contribution, Cut, Outcome, PassPlan, Position, Window
from paceline.worker.pulled import Pulled, speaker_of
from paceline.worker.recipe_parts import own_gradient
from paceline.worker.session import Session
from paceline.worker.shard_ways import enter
from paceline.worker.shared_gradients import BUCKET_BYTES, MakeGradients, SharedGradients
from paceline.worker.training import Training

BROADCAST_BYTES = 16 * 2**20
"""Buffers travel through the server in pieces of this size, well below a message's limit."""


class ServerPlane:
    """The plane of every strategy that has a server: ``sync:server``, ``backup``, ``ssp``, ``async``.

    ``groups``: whose gradients this worker pushes with its own, if it is one of a group's;
    ``make_gradients``: where they lie then. ``parameters_fd``: what the parameters shown are called.
    """

    name = "server"
    settled = True

    def __init__(
        self,
        session: Session,
        training: Training,
        *,
        groups: Groups = (),
        make_gradients: MakeGradients | None = None,
    ) -> None:
        self._session = session
        self._training = training
        self._joint = is_joint(training.strategy)
        self.together = is_dealt(training.strategy)
        self._plan: PassPlan | None = None
        self._window = 1
        self._scale = training.precision.scale.value
        self._leases: list[int] = []
        self._next: Started | None = None
        layout = flat_layout(training.trainables)
        self._sizes = [slot.span_bytes for slot in gradients_of(layout).slots]
        self._accumulation = Accumulation(training.parameters, training.precision.accumulate)
        self._sums = needs_everyone(training.strategy) and training.compress is None
        self._gradients = (make_gradients or self._own_gradients())(
            training.parameters, gradients_of(layout)
        )
        pushers = len(groups) or session.world_size
        self._own = own_gradient(training, self._gradients.views, pushers)
        self._compress = compressing(
            training.compress, gradients_of(layout), self._gradients.views,
            kept=training.compressed, workers=pushers, clock_s=training.clock_s,
            wire_bytes_per_s=_wire_bytes_per_s(session, training), speaker=partial(speaker_of, session),
        )  # fmt: skip
        whole_bytes = sum(slot.span_bytes for slot in layout.slots)
        self._pulled = Pulled(whole_bytes, self._compress.account)
        self._pulled_bytes = 0
        if session.rank == 0:
            self._gradients.show_parameters()
        self._groups = self._hyperparameters()
        self._way, self._shared, opened = self._open(groups, layout)
        self._show(opened.parameters_fd)
        # The server steps: torch must not warn a plain scheduler that nobody did.
        vars(training.optimizer)["_opt_called"] = True
        self._position = Position(
            version=opened.version, clock=opened.clock, progress=training.progress
        )

    def _own_gradients(self) -> MakeGradients:
        """In memory that the server maps, or has to be sent."""
        sends = self._session.frames is not None or self._session.shards > 1
        tells = (self._sums and _cores_are_free(self._session.world_size)) or sends
        clock_s = self._training.clock_s
        return partial(SharedGradients, tell=self._filled if tells else None, clock_s=clock_s)

    def _open(self, groups: Groups, layout: FlatLayout) -> tuple[Way, Parameters, Opened]:
        """Agree with the server, and with its shards if it has any, on what is where."""
        training, parameters = self._training, self._training.parameters
        early = not self._own.clips and training.compress is None
        received = partial(
            ReceivedParameters, clock_s=training.clock_s, carried=self._pulled.carried
        )
        pull = None if training.compress is None else training.compress.of_pulls()
        first = way_of(
            self._session, self._gradients, parameters, layout, ahead=self._sums, early=early,
            received=partial(received, pull=pull),
        )  # fmt: skip
        opened, shared = first.open(self._opening(groups))
        if not opened.owners:
            return first, shared, opened
        among, divided = enter(
            self._session, opened, self._gradients, parameters, layout,
            bucket_bytes=BUCKET_BYTES, early=early, received=received,
        )  # fmt: skip
        return among, divided, opened

    def position(self) -> Position:
        return self._position

    @property
    def has_next(self) -> bool:
        """Whether the next window came with the last decision."""
        return self._next is not None

    def spread(self, broadcast: Callable[[torch.Tensor], None], fd: int) -> None:
        """Show members of a group the parameters that its leader shows, called ``fd``."""
        self._shared.spread(broadcast, fd)

    def _show(self, fd: int) -> None:
        self.parameters_fd = fd
        began_s = self._training.clock_s()
        self._shared.show(fd)
        self._pulled.shown(self._training.clock_s() - began_s)

    def loss_scale(self) -> float:
        return self._scale

    @property
    def account(self) -> Account | None:
        return self._compress.account

    def open_pass(self, plan: PassPlan) -> None:
        self._plan = plan
        self._window = plan.window
        self._leases = []
        self._request_pass(plan, plan.depth)

    def leases(self) -> list[int]:
        fresh, self._leases = self._leases, []
        return fresh

    def next_window(self) -> Window | None:
        if self._plan is None:
            return None
        began_s = self._training.clock_s()
        reply, self._next = self._next, None
        if reply is None:
            reply = self._way.ask(Ready())
        self._show(reply.parameters_fd)
        self._position = Position(version=reply.version, clock=reply.clock, progress=reply.progress)
        self._pulled_bytes = self._pulled.came(reply)
        if isinstance(reply, Ended):
            self._plan = None
            return None
        self._leases += reply.leases
        self._scale = reply.scale
        return Window(
            clock=reply.clock,
            version=reply.version,
            batches=tuple(reply.batches),
            unit=self._plan.unit if self._joint else None,
            gate_s=reply.waited_s,
            pull_s=max(0.0, self._training.clock_s() - began_s - reply.waited_s),
            scale=self._scale,
        )

    def before_backward(self, *, last: bool) -> None:
        self._gradients.before_backward(last=last)

    def exchange(self, contribution: Contribution) -> Outcome:
        began_s = self._training.clock_s()
        push = self._push(contribution)
        decided = self._way.push(push)
        self._show(decided.parameters_fd)
        self._gradients.clear()
        norm = self._own.decided(decided)
        self._compress.settle(decided.applied)
        self._next = decided.next
        self._leases += decided.leases
        self._position = Position(
            version=decided.version, clock=decided.clock, progress=decided.progress
        )
        return Outcome(
            applied=decided.applied,
            reason=decided.reason,
            version=decided.version,
            clock=decided.clock,
            norm=norm,
            lag=decided.lag,
            progress=decided.progress,
            wait_s=decided.waited_s,
            exchange_s=self._training.clock_s() - began_s - decided.waited_s,
            sent_bytes=self._sent_bytes(push),
            received_bytes=self._pulled_bytes,
            buckets=self._gradients.times(),
            skipped=decided.kind == "non-finite",
            coding_s=0.0 if self.account is None else self.account.take_coding_s(),
        )

    def end_pass_early(self) -> None:
        if self._plan is None:
            return
        self._request_pass(self._plan, 0)
        if self._next is not None:  # started already: the others count on a push for it
            self._next = None
            self._way.push(self._push(Contribution(weight=0.0, unit=self._plan.unit)))
            self._gradients.clear()

    def latest(self) -> AbstractContextManager[None]:
        return self._shared.showing(self._way.ask(Read()).parameters_fd)

    def gather(self, tag: str, payload: bytes) -> list[bytes]:
        return self._session.gather(tag, payload)

    def broadcast(self, tensors: list[torch.Tensor]) -> None:
        data = pack(tensors)
        for start in range(0, len(data), BROADCAST_BYTES):
            piece = data[start : start + BROADCAST_BYTES]
            mine = piece.numpy().tobytes() if self._session.rank == 0 else b""
            roots = self._session.gather("broadcast", mine)[0]
            piece.copy_(torch.frombuffer(bytearray(roots), dtype=torch.uint8))
        unpack(data, tensors)

    def hand_in(self, pass_id: int, number: int, part: bytes) -> dict[int, bytes] | None:
        return self._session.hand_in(pass_id, number, part, together=self.together)

    def own_state(self) -> dict[str, Any]:
        return {**self._own.state(), **self._compress.state()}

    @contextmanager
    def cut(self) -> Iterator[Cut]:
        taken: CutTaken = self._way.ask(TakeCut())
        with self._shared.showing(taken.parameters_fd):
            yield Cut(
                version=taken.version,
                progress=taken.progress,
                clocks=dict(zip(taken.ranks, taken.clocks, strict=True)),
                left=tuple(taken.left),
                state=taken.state,
                limit=taken.limit,
            )

    def sync_optimizer(self) -> None:
        state = self._session.request(Fetch()).state
        load_state(self._training.optimizer, self._training.trainables, state)
        self._own.show()

    def close(self, reason: Literal["finished", "departed"]) -> None:
        self._plan = None
        self._gradients.close()
        self._accumulation.close()
        try:
            if self._session.usable:
                self.sync_optimizer()
                narrow_state(self._training.optimizer, self._training.trainables)
        finally:
            self._session.close(reason)
            self._shared.release()

    def _opening(self, groups: Groups) -> Open:
        training, own = self._training, self._own
        gives_state = self._session.rank == 0 and not own.keeps_state
        return Open(
            strategy=str(training.strategy),
            manifest=tensors_of(training.trainables),
            optimizer=OptimizerSpec(name=type(training.optimizer).__name__, groups=self._groups),
            clip_norm=None if own.clips else training.clip_norm,
            region_fd=-1,
            region_bytes=self._gradients.region.memory.numel(),
            bucket_bytes=BUCKET_BYTES,
            state=dump_state(training.optimizer, training.trainables) if gives_state else None,
            scale=training.precision.scale.value,
            scale_patience=training.precision.scale.patience,
            version=training.version,
            progress=training.progress,
            serving_s=training.serving_s,
            limit=None if own.clips else training.limit,
            compress="" if training.compress is None else str(training.compress),
            groups=[list(group) for group in groups],
            far=training.far,
        )

    def _hyperparameters(self) -> list[dict[str, Any]]:
        groups = hyperparameters(self._training.optimizer, lr_factor=self._training.lr_factor)
        return self._own.servers(groups)

    def _request_pass(self, plan: PassPlan, depth: int) -> None:
        reply = self._session.request(
            OpenPass(
                pass_id=plan.pass_id,
                total=plan.total,
                window=plan.window,
                depth=depth,
                weight=plan.weight,
                split=plan.split,
            )
        )
        self._leases += reply.batches

    def _push(self, contribution: Contribution) -> Push:
        full = self._gradients.complete(empty=contribution.weight == 0, fill_unused=self._joint)
        push = Push(
            weight=contribution.weight,
            unit=contribution.unit,
            used=full.used,
            bad=full.bad,
            norm=full.norm,
            stop=contribution.stop,
            total=contribution.total,
            groups=self._changed_groups(),
            rate=self._training.warm_up.factor(self._position.progress, self._window),
        )
        return self._compress.packed(
            self._own.refined(push), turn=self._position.version,
            progress=self._position.progress, window=self._window,
        )  # fmt: skip

    def _filled(self, buckets: int) -> None:
        """In the midst of backward: the server may sum what every worker has."""
        self._way.filled(buckets)

    def _changed_groups(self) -> list[dict[str, Any]] | None:
        """The groups' hyper-parameters, if they differ from what the server last heard."""
        groups = self._hyperparameters()
        if groups == self._groups:
            return None
        self._groups = groups
        return groups

    def _sent_bytes(self, push: Push) -> int:
        if push.parcel is not None:
            return len(push.parcel)
        sizes = zip(self._sizes, push.used, strict=True)
        return sum(size for size, one in sizes if one or self._joint)


def _cores_are_free(workers: int) -> bool:
    """Whether the server can sum during backward without taking a core from it.

    Where it cannot, that costs more than it saves: 13 ms of an 87 ms step (docs/performance.md).
    """
    return len(os.sched_getaffinity(0)) > workers * torch.get_num_threads()


def _wire_bytes_per_s(session: Session, training: Training) -> float | None:
    """What gradients travel at to the server: on its host they need not. None: that is not known yet."""
    return None if session.frames is not None or training.far else math.inf
