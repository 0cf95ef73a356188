"""Ranks of local SGD as threads: real planes, and a session that only gathers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from local_sgd.toy import UNIT, Make, batch_of, loss_of
from paceline.strategies import parse_strategy
from paceline.worker.gathering import Gathering
from paceline.worker.manifest import trainable
from paceline.worker.plane import Contribution, Outcome, PassPlan, Window
from paceline.worker.replica_plane import ReplicaPlane
from paceline.worker.session import Session
from paceline.worker.training import Training
from worker.table import Table, at_once

BROKEN = threading.BrokenBarrierError


class Seat:
    """What a plane asks of its session, at a table of threads."""

    stopped = False

    def __init__(self, table: Table, rank: int) -> None:
        self.rank, self.world_size = rank, table.size
        self.gathers = 0
        self._gather = table.seat(rank)

    def gather(self, tag: str, payload: bytes) -> list[bytes]:
        self.gathers += 1
        message = torch.tensor(list(payload), dtype=torch.uint8)
        return [bytes(one.tolist()) for one in self._gather(message)]

    def check(self) -> None:
        return

    def close(self, reason: str) -> None:
        return


@dataclass(kw_only=True)
class Play:
    """How ranks go through ``passes`` of ``total`` batches. ``spoiled``: (rank, batch) of a NaN;
    ``leaves``: after so many windows of each pass, by rank; ``stops``: at the window of this number;
    ``known``: whether ranks know the total before; ``totals``: of ranks with data of their own;
    ``first``: number of the loader's batch that batch 0 is; ``replicas``: what a checkpoint has of each."""

    strategy: str
    make: Make
    window: int = 1
    total: int = 12
    world: int = 3
    passes: int = 1
    spoiled: tuple[tuple[int, int], ...] = ()
    leaves: dict[int, int] = field(default_factory=dict)
    stops: dict[int, int] = field(default_factory=dict)
    known: bool = True
    totals: tuple[int, ...] = ()
    first: int = 0
    replicas: Sequence[dict[str, Any]] = ()
    at_window: Callable[[Rank, Window], None] = lambda rank, window: None
    begin: Callable[[Rank], None] = lambda rank: None
    training: dict[str, Any] = field(default_factory=dict)


class Rank:
    """One rank of a play. ``outcomes``: of all its windows."""

    def __init__(self, play: Play, table: Table, rank: int) -> None:
        self.play, self.rank = play, rank
        self.model, self.optimizer = play.make(rank)
        self.outcomes: list[Outcome] = []
        self.drifts: list[Any] = []
        play.begin(self)
        seat = cast(Session, Seat(table, rank))
        training = Training(
            model=self.model, optimizer=self.optimizer,
            trainables=trainable(self.model, self.optimizer),
            strategy=parse_strategy(play.strategy), **play.training,
            replica=play.replicas[rank] if play.replicas else {},
        )  # fmt: skip
        self.plane = ReplicaPlane(seat, training, Gathering(seat))

    def run(self) -> Rank:
        for number in range(self.play.passes):
            self._pass(number)
            self.drifts.append(self.plane.drift)
        return self

    def _pass(self, number: int) -> None:
        play, plane = self.play, self.plane
        total = play.totals[self.rank] if play.totals else play.total
        plane.open_pass(
            PassPlan(
                pass_id=number, total=total if play.known else None, window=play.window,
                depth=play.window, weight=play.window * UNIT, unit=UNIT, split=not play.totals,
                sharing=sum(map(bool, play.totals)) if play.totals else None,
            )
        )  # fmt: skip
        had = 0
        while (window := plane.next_window()) is not None:
            play.at_window(self, window)
            if had == play.leaves.get(self.rank):
                plane.end_pass_early()
                self.outcomes.append(plane.exchange(Contribution(weight=0.0, unit=UNIT)))
            else:
                self.outcomes.append(plane.exchange(self._compute(window, total, had)))
            had += 1

    def _compute(self, window: Window, total: int, had: int) -> Contribution:
        batches = [batch for batch in window.batches if batch < total]
        weight, unit = 0.0, UNIT
        for batch in batches:
            self.plane.before_backward(last=batch == batches[-1])
            number = batch + self.play.first
            own = float(len(batch_of(number)[0]))
            unit = unit if weight else own
            loss = loss_of(self.model, number) * (own / unit)
            (loss * float("nan") if (self.rank, batch) in self.play.spoiled else loss).backward()
            weight += own
        ended = len(batches) < len(window.batches)
        return Contribution(
            weight=weight, unit=unit, total=total if ended else None,
            stop=self.play.stops.get(self.rank) == had,
        )  # fmt: skip


def played(**how: Any) -> list[Rank]:
    """All ranks of the play, at its end."""
    play = Play(**how)
    table = Table(play.world)
    torch.set_num_threads(1)
    return at_once(play.world, lambda rank: Rank(play, table, rank).run())
