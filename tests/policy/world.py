"""A driver for tests: workers that do whatever the numbers on a tape tell them to.

``World.play(tape)`` turns any list of whole numbers into a schedule that a real driver could have
produced (mixed speeds, joins, deaths, breaks, streams, stop flags); ``World.drain()`` then lets
everybody who is left finish, fairly. The world knows what each worker may do next, and nothing of
how the coordinator decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.events import (
    Drop,
    Fact,
    Halt,
    Join,
    Lease,
    Leave,
    Order,
    Pull,
    Push,
    Release,
    Request,
    Start,
    Tick,
    Update,
)

Feed = Callable[[Fact], list[Order]]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What does not change during a schedule. ``end``: batches of a pass; ``known``: from the start."""

    strategy: str
    world_size: int = 3
    window: int = 1
    depth: int = 2
    end: int = 12
    known: bool = True
    split: bool = True
    passes: int = 2
    extra: int = 1  # joiners beyond world_size
    faults: bool = True


@dataclass
class Worker:
    rank: int
    incarnation: int = -1
    state: str = "out"  # out, idle, asked, waiting, running, pushed, left
    passes_done: int = 0
    batches: tuple[int, ...] = ()
    leased: set[int] = field(default_factory=set)
    learned: bool = False
    speed: int = 1


@dataclass
class World:
    scene: Scene
    feed: Feed
    speeds: Sequence[int] = ()
    time_s: float = 0.0
    halted: bool = False
    stopped: bool = False
    gave_up: bool = False  # somebody broke off, or ended its script early
    late_join: bool = False
    left_early: bool = False
    log: list[tuple[Fact, list[Order]]] = field(default_factory=list)
    observers: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = self.scene.world_size + self.scene.extra
        self.workers = [Worker(rank=rank) for rank in range(count)]
        for worker, speed in zip(self.workers, self.speeds, strict=False):
            worker.speed = speed

    # ------------------------------------------------------------------ schedule

    def play(self, tape: Sequence[int]) -> None:
        for number in tape:
            if self.halted:
                return
            self.time_s += 1.0
            able = [w for w in self.workers for _ in range(w.speed) if self._can(w)]
            if not able:
                return
            worker = able[(number >> 8) % len(able)]
            self._act(worker, number & 255)

    def drain(self, limit: int = 4000) -> None:
        """Everybody does the next normal thing, in turn, until nobody can."""
        for _ in range(limit):
            able = [w for w in self.workers if self._can(w) and not self._stays_out(w)]
            if self.halted or not able:
                return
            for worker in able:
                if self._can(worker) and not self.halted:
                    self.time_s += 0.01
                    self._step(worker)
        raise AssertionError("no end in sight")

    def waiting(self) -> list[Worker]:
        return [w for w in self.workers if w.state in ("waiting", "pushed")]

    # -------------------------------------------------------------------- workers

    def _stays_out(self, worker: Worker) -> bool:
        late = worker.rank >= self.scene.world_size
        return worker.state == "out" and (late or worker.incarnation >= 0)

    def _can(self, worker: Worker) -> bool:
        return worker.state in ("out", "idle", "asked", "running")

    def _act(self, worker: Worker, dice: int) -> None:
        if self.scene.faults and worker.state != "out" and dice < 24:
            self._misbehave(worker, dice)
        else:
            self._step(worker, dice)

    def _misbehave(self, worker: Worker, dice: int) -> None:
        if dice < 6:
            self._tell(Leave(time_s=self.time_s, rank=worker.rank, reason="dead"))
        elif dice < 8:
            self._tell(Leave(time_s=self.time_s, rank=worker.rank, reason="departed"))
        elif dice < 10:
            self._tell(Leave(time_s=self.time_s, rank=worker.rank, reason="finished"))
            worker.state = "left"
        elif dice < 12 and self.waiting():
            victim = self.waiting()[dice % len(self.waiting())]
            self._tell(Leave(time_s=self.time_s, rank=victim.rank, reason="dead"))
        elif dice < 16 and worker.state == "asked":
            worker.leased = set()
            self.gave_up = True
            self._tell(self._request(worker, depth=0))
            self._pass_over(worker)
        elif dice < 18:
            self._tell(Tick(time_s=self.time_s))
        elif dice < 20:
            self.time_s += 7.0
        elif dice < 22 and worker.state == "running":
            self.stopped = True
            for each in self.workers:
                each.leased = set()
            self._push(worker, weight=8.0, stop=True)
        else:
            self._tell(Tick(time_s=self.time_s, rank=worker.rank))

    def _step(self, worker: Worker, dice: int = 255) -> None:
        if worker.state == "out":
            worker.incarnation += 1
            self.late_join |= any(isinstance(fact, Request) for fact, _ in self.log)
            worker.state = "idle"
            self._tell(Join(time_s=self.time_s, rank=worker.rank, incarnation=worker.incarnation))
        elif worker.state == "idle" and worker.passes_done == self.scene.passes:
            self._tell(Leave(time_s=self.time_s, rank=worker.rank, reason="finished"))
            worker.state = "left"
        elif worker.state == "idle":
            worker.state = "asked"
            worker.learned = False
            self._tell(self._request(worker, depth=self.scene.depth))
        elif worker.state == "asked":
            worker.state = "waiting"
            self._tell(Pull(time_s=self.time_s, rank=worker.rank))
        else:
            self._push_dice(worker, dice)

    def _push_dice(self, worker: Worker, dice: int) -> None:
        beyond = [b for b in worker.batches if b >= self.scene.end]
        if beyond and not worker.learned and not self.scene.known:
            worker.learned = True
            for each in self.workers if self.scene.split else [worker]:
                each.leased = {batch for batch in each.leased if batch < self.scene.end}
            self._tell(self._request(worker, depth=self.scene.depth))
        if worker.state != "running":
            return
        empty = len(beyond) == len(worker.batches) or (self.scene.faults and 24 <= dice < 30)
        bad = self.scene.faults and 30 <= dice < 36
        weight = 0.0 if empty else [8.0, 8.0, 2.5, 0.1][dice % 4]
        self._push(worker, weight=weight, finite=not bad)

    def _push(self, worker: Worker, **fields: Any) -> None:
        worker.state = "pushed"
        self._tell(Push(time_s=self.time_s, rank=worker.rank, unit=8.0, **fields))

    def _request(self, worker: Worker, *, depth: int) -> Request:
        scene = self.scene
        return Request(
            time_s=self.time_s,
            rank=worker.rank,
            pass_id=worker.passes_done,
            total=scene.end if scene.known or worker.learned else None,
            window=scene.window,
            depth=depth,
            weight=8.0,
            split=scene.split,
        )

    def _pass_over(self, worker: Worker) -> None:
        worker.passes_done += 1
        worker.state = "idle"

    # --------------------------------------------------------------------- orders

    def _tell(self, fact: Fact) -> None:
        orders = self.feed(fact)
        self.log.append((fact, orders))
        for order in orders:
            self._obey(order)
        for observer in self.observers:
            observer()

    def _obey(self, order: Order) -> None:
        if isinstance(order, Start):
            worker = self.workers[order.rank]
            assert worker.state == "waiting", order
            worker.state = "running"
            worker.batches = order.batches
            worker.leased -= set(order.batches)
        elif isinstance(order, Lease):
            self._leased(self.workers[order.rank], order)
        elif isinstance(order, Update):
            for rank in order.ranks:
                self._decided(rank)
        elif isinstance(order, Drop):
            self._decided(order.rank)
        elif isinstance(order, Release):
            self._released(self.workers[order.rank])
        elif isinstance(order, Halt):
            self.halted = True

    def _released(self, worker: Worker) -> None:
        fact = self.log[-1][0]
        early = worker.passes_done < self.scene.passes
        self.left_early |= early
        self.gave_up |= early and isinstance(fact, Leave) and fact.reason == "finished"
        worker.leased = set()
        worker.state = "out"

    def _leased(self, worker: Worker, order: Lease) -> None:
        worker.leased |= set(order.batches)
        if order.last:
            assert worker.state == "waiting", order
            assert self.stopped or not worker.leased, order
            worker.leased = set()
            self._pass_over(worker)

    def _decided(self, rank: int) -> None:
        if self.workers[rank].state == "pushed":
            self.workers[rank].state = "asked"
