"""Groups of workers that are synchronous inside, each of which is one worker to the server.

At a window's end the members' gradients are added up in the leader's region, which pushes the sum; what
the server answers the leader tells the members, parameters included where they do not see the
server's memory. Nothing is decided here: which batches a window of the group covers is the policy's
word, and they go to the members in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import torch

from paceline.gradients.layout import FlatLayout
from paceline.strategies import outer_of
from paceline.worker.circle import Circle, Voice, join
from paceline.worker.compression_account import Account
from paceline.worker.group_feedback import led
from paceline.worker.group_gradients import GroupGradients, GroupWindow
from paceline.worker.plane import Contribution, Cut, Outcome, PassPlan, Position, Window
from paceline.worker.server_plane import ServerPlane
from paceline.worker.session import Session
from paceline.worker.shares import OwnShares, SharedOut, Shares
from paceline.worker.training import Training


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What the leader tells its group. ``outcome``: of the window that was pushed; ``window``: the next
    one, of the whole group; neither: the pass is over. ``leases``: batches newly leased to the group.
    ``parameters_fd``: what holds the parameters of ``position``, where memory is shared."""

    position: Position
    parameters_fd: int
    leases: tuple[int, ...]
    outcome: Outcome | None = None
    window: Window | None = None


class HybridPlane:
    """The plane of a worker that shares its pushes with others of its ``circle``."""

    name = "hybrid"
    settled = True

    def __init__(self, session: Session, training: Training, circle: Circle) -> None:
        self._session = session
        self._clock_s = training.clock_s
        self._circle = circle
        self._group = join(circle, session)
        self._voice = Voice(self._group)
        warm_up = replace(training.warm_up, workers=len(circle.groups))
        training = led(training, circle, self._group)
        self._outer = ServerPlane(
            session,
            replace(training, strategy=outer_of(training.strategy), warm_up=warm_up),
            groups=circle.groups, make_gradients=self._make_gradients,
        )  # fmt: skip
        self.together = self._outer.together
        self._shares: Shares = SharedOut(size=circle.size, place=circle.place)
        self._total: int | None = None
        self._plan: PassPlan | None = None
        self._position = self._outer.position()
        self._scale = training.precision.scale.value
        self._shown = self._position.version
        compress = training.compress  # a version that is shown may still come nearer
        self._by_differences = compress is not None and compress.pull is not None
        self._left = self._gone = False
        self._next: Window | None = None

    def _make_gradients(
        self, parameters: Sequence[torch.nn.Parameter], layout: FlatLayout
    ) -> GroupGradients:
        self._gradients = GroupGradients(
            parameters, layout, group=self._group, circle=self._circle, clock_s=self._clock_s
        )
        return self._gradients

    def position(self) -> Position:
        return self._position

    @property
    def account(self) -> Account | None:
        return self._outer.account

    def loss_scale(self) -> float:
        return self._scale

    def open_pass(self, plan: PassPlan) -> None:
        size, place = self._circle.size, self._circle.place
        self._plan = plan
        self._left = self._gone = False
        self._next = None
        self._total = None if plan.split else plan.total
        self._shares = (
            SharedOut(size=size, place=place)
            if plan.split
            else OwnShares(size=size, place=place, count=plan.total)
        )
        if self._circle.leads:
            self._outer.open_pass(
                replace(
                    plan, window=plan.window * size, depth=plan.depth * size,
                    weight=plan.weight * size, total=plan.total if plan.split else None,
                )
            )  # fmt: skip

    def leases(self) -> list[int]:
        return [] if self._left else self._shares.fresh()

    def next_window(self) -> Window | None:
        """The next window, after taking part with nothing in those in which this member has none."""
        self._session.check()
        while self._plan is not None:
            window = self._agreed_window()
            if window is None:
                self._plan = None
                return None
            batches = self._shares.of(window.batches)
            if batches and not self._left:
                return replace(window, batches=batches, unit=self._plan.unit)
            self._round(self._plan, self._nothing(self._plan))
        return None

    def before_backward(self, *, last: bool) -> None:
        self._gradients.before_backward(last=last)

    def exchange(self, contribution: Contribution) -> Outcome:
        assert self._plan is not None, "exchange outside a pass"
        return self._round(self._plan, contribution)

    def end_pass_early(self) -> None:
        self._left = True

    def latest(self) -> AbstractContextManager[None]:
        return self._outer.latest()

    def gather(self, tag: str, payload: bytes) -> list[bytes]:
        return self._session.gather(tag, payload)

    def broadcast(self, tensors: list[torch.Tensor]) -> None:
        self._outer.broadcast(tensors)

    def hand_in(self, pass_id: int, number: int, part: bytes) -> dict[int, bytes] | None:
        return self._outer.hand_in(pass_id, number, part)

    def own_state(self) -> dict[str, Any]:
        return self._outer.own_state()

    def cut(self) -> AbstractContextManager[Cut]:
        return self._outer.cut()

    def sync_optimizer(self) -> None:
        self._outer.sync_optimizer()

    def close(self, reason: Literal["finished", "departed"]) -> None:
        self._plan = None
        try:
            self._outer.close(reason)
        finally:
            self._group.close(abandon=reason != "finished" or self._session.stopped)

    # ----------------------------------------------------------------------------- one window

    def _nothing(self, plan: PassPlan) -> Contribution:
        return Contribution(weight=0.0, unit=plan.unit / self._scale)

    def _agreed_window(self) -> Window | None:
        """The group's next window, unless it came with the decision on the last one: its leader asks
        once no member reads the version any more that it has."""
        if self._next is not None:
            return self._take_next()
        left = self._voice.count(self._left)
        if self._circle.leads:
            self._leave_if(left)
            self._tell(None, self._outer.next_window())
        else:
            self._hear()
        return self._take_next()

    def _take_next(self) -> Window | None:
        window, self._next = self._next, None
        return window

    def _round(self, plan: PassPlan, contribution: Contribution) -> Outcome:
        """One window of all members: add up; the leader pushes, and tells what became of it."""
        began_s = self._clock_s()
        if contribution.total is not None:
            self._total = contribution.total
        known = replace(contribution, total=self._total)
        together = self._gradients.add_up(known, left=self._left)
        if self._circle.leads:
            outcome = self._push(plan, together)
        else:
            heard = self._hear()
            assert heard is not None, "a push without an outcome"
            outcome = replace(heard, sent_bytes=0, received_bytes=0)
        self._gradients.clear()
        wait_s = together.wait_s + outcome.wait_s
        spent_s = self._clock_s() - began_s
        return replace(
            outcome, wait_s=wait_s, exchange_s=max(0.0, spent_s - wait_s),
            buckets=self._gradients.times(),
        )  # fmt: skip

    def _push(self, plan: PassPlan, together: GroupWindow) -> Outcome:
        outcome = self._outer.exchange(
            Contribution(
                weight=together.weight,
                unit=plan.unit / self._scale,
                stop=together.stop,
                total=self._shares.total(together.totals),
            )
        )
        self._leave_if(together.left)
        window = self._outer.next_window() if self._outer.has_next else None
        self._tell(outcome, window)
        return outcome

    def _leave_if(self, left: int) -> None:
        """All members have broken off: so has the group."""
        if left == self._circle.size and not self._gone:
            self._gone = True
            self._outer.end_pass_early()

    # ------------------------------------------------------------------- leader and members

    def _tell(self, outcome: Outcome | None, window: Window | None) -> None:
        told = Told(
            position=self._outer.position(), parameters_fd=self._outer.parameters_fd,
            leases=tuple(self._outer.leases()), window=window,
            outcome=None if outcome is None else replace(outcome, buckets=None),
        )  # fmt: skip
        self._voice.tell(_encoder.encode(told))
        self._take(told)

    def _hear(self) -> Outcome | None:
        told = _decoder.decode(self._voice.hear())
        self._take(told)
        return told.outcome

    def _take(self, told: Told) -> None:
        if self._by_differences or told.position.version != self._shown:
            self._outer.spread(self._group.broadcast, told.parameters_fd)
            self._shown = told.position.version
        self._shares.lease(told.leases)
        self._position = told.position
        self._next = told.window
        if told.window is not None:
            self._scale = told.window.scale


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Told)
