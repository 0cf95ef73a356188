"""A deliberately dumb coordinator: whatever it needs to know it works out from scratch.

It keeps what each member holds and what has happened to each batch, and nothing derived: no
counts, no queues, no set of the active, no list of the held. Floor, quorum, sum of weights, free
batches and who is done are recomputed from the whole state at every question; liveness from the
whole history of facts. Slow, plain, and written apart from :mod:`paceline.policy`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count, islice
from math import ceil, fsum, inf

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
    WakeAt,
)
from paceline.strategies import Backup, Strategy, Sync


@dataclass(eq=False)
class Life:
    rank: int
    clock: int
    serial: int
    state: str = "idle"
    asked: Request | None = None  # its Request for the open pass or an earlier one
    next_asked: Request | None = None
    out: bool = False
    leased: list[int] = field(default_factory=list)
    computing: list[int] = field(default_factory=list)
    pulled_version: int = 0
    push: Push | None = None
    waits_since: int = 0
    was_done: bool = True


class DumbCoordinator:
    def __init__(self, *, strategy: Strategy, world_size: int, evict_after_s: float = inf) -> None:
        self.sync = isinstance(strategy, Sync) or (
            not isinstance(strategy, Backup) and strategy.staleness == 0
        )
        self.spares = strategy.spares if isinstance(strategy, Backup) else 0
        self.joint = self.sync or self.spares > 0
        self.bound = 0 if self.joint else strategy.staleness  # type: ignore[union-attr]
        self.mean = not self.joint and strategy.push_scale == "mean"  # type: ignore[union-attr]
        self.halts = self.sync and getattr(strategy, "on_death", "stop") == "stop"
        self.world_size = world_size
        self.evict_after_s = evict_after_s
        self.history: list[Fact] = []
        self.lives: list[Life] = []  # of all times; the dead have state "gone"
        self.floor = 0
        self.version = 0
        self.progress = 0
        self.pass_id: int | None = None  # of the open pass
        self.last_pass_id = -1
        self.slots: list[Life] = []
        self.split = True
        self.stopped = False
        self.totals: list[tuple[Life, int | None]] = []
        self.spent: list[tuple[Life, int]] = []  # batches of the open pass nobody computes again
        self.alarm_s: float | None = None
        self.halted = False
        self.out: list[Order] = []

    # ------------------------------------------------------------------ questions

    def here(self) -> list[Life]:
        return sorted((m for m in self.lives if m.state != "gone"), key=lambda m: m.rank)

    def member(self, rank: int) -> Life:
        return next(m for m in self.here() if m.rank == rank)

    def takes_part(self, m: Life) -> bool:
        """Has asked for the open pass, and may have batches of it."""
        return m.asked is not None and m.asked.pass_id == self.pass_id and not m.out

    def total(self, m: Life) -> int | None:
        said = [t for life, t in self.totals if t is not None and (self.split or life is m)]
        return min(said) if said else None

    def free(self, m: Life) -> list[int] | None:
        """Batches nobody holds that ``m`` might get; None: no end of them."""
        total = self.total(m)
        return None if total is None else list(self.free_of(m, range(total)))

    def free_of(self, m: Life, numbers):
        mine = (lambda life: True) if self.split else (lambda life: life is m)
        taken = {b for life, b in self.spent if mine(life)}
        taken |= {b for life in self.lives if mine(life) for b in life.leased + life.computing}
        return (b for b in numbers if b not in taken)

    def first_free(self, m: Life, n: int) -> list[int]:
        total = self.total(m)
        return list(islice(self.free_of(m, count() if total is None else range(total)), n))

    def dry(self, m: Life) -> bool:
        if self.stopped:
            return True
        if not self.split and not any(life is m for life, _ in self.totals):
            return False  # it has not said yet
        return self.free(m) == []

    def done(self, m: Life) -> bool:
        if self.pass_id is None or m.state == "gone":
            return True
        if m.state in ("running", "pushed") or m.leased:
            return False
        if self.sync and self.split:
            return True  # it has no share of the rounds dealt so far
        return m.out or self.dry(m)

    def busy(self) -> list[Life]:
        return [m for m in self.here() if not self.done(m)]

    def refresh(self) -> None:
        """Whoever is no longer done stands at the floor at least; the floor follows the slowest."""
        for m in self.here():
            if not self.done(m):
                if m.was_done:
                    m.clock = max(m.clock, self.floor)
                m.was_done = False
            else:
                m.was_done = True
        if not self.joint and self.busy():
            self.floor = max(self.floor, min(m.clock for m in self.busy()))

    def held_pushes(self) -> list[Life]:
        return sorted((m for m in self.lives if m.push is not None), key=lambda m: m.rank)

    def weight_sum(self) -> float:
        weights = []
        for rank in {f.rank for f in self.history if isinstance(f, Join)}:
            mine = [f for f in self.history if getattr(f, "rank", None) == rank]
            start = max(i for i, f in enumerate(mine) if isinstance(f, Join))
            mine = mine[start:]
            left = [m for m in self.lives if m.rank == rank][-1].state == "gone"
            finished = any(isinstance(f, Leave) and f.reason == "finished" for f in mine)
            if left and not finished:
                continue
            pushed = [f.weight for f in mine if isinstance(f, Push) and f.weight > 0]
            asked = [f.weight for f in mine if isinstance(f, Request)]
            anyone = [f.weight for f in self.history if isinstance(f, Request)]
            weights.append((pushed or asked or anyone or [0.0])[-1])
        return fsum(weights)

    # --------------------------------------------------------------------- facts

    def feed(self, fact: Fact) -> list[Order]:
        self.out = []
        if not self.halted:
            self.history.append(fact)
            getattr(self, "on_" + type(fact).__name__.lower())(fact)
        return self.out

    def on_join(self, fact: Join) -> None:
        clash = any(m.rank == fact.rank for m in self.held_pushes())
        m = Life(rank=fact.rank, clock=self.floor + clash, serial=len(self.history))
        m.out = self.pass_id is not None and self.sync
        self.lives.append(m)
        self.refresh()
        self.open_pass()
        self.settle()
        self.set_alarm()

    def on_leave(self, fact: Leave) -> None:
        if all(m.rank != fact.rank for m in self.here()):
            return
        m = self.member(fact.rank)
        returned = self.remove(m, keeps_share=fact.reason == "finished")
        if fact.reason == "dead" and self.halts:
            self.halt(m)
            return
        if returned:
            self.supply(self.here())
        self.open_pass()
        self.settle()

    def on_request(self, fact: Request) -> None:
        m = self.member(fact.rank)
        if fact.pass_id > self.last_pass_id:
            m.next_asked = fact
            if self.pass_id is not None:
                self.break_off(m)
            self.open_pass()
        elif fact.pass_id < self.last_pass_id or self.pass_id is None:
            m.asked = fact
        else:
            others_too = self.accept(m, fact)
            if not (fact.depth == 0 and self.break_off(m)):
                self.supply(self.here() if others_too else [m])
        self.settle()

    def on_pull(self, fact: Pull) -> None:
        m = self.member(fact.rank)
        m.state = "waiting"
        m.waits_since = len(self.history)
        if m.leased:
            self.start_if_allowed(m)
        elif m.next_asked is None and (self.pass_id is None or m.asked.pass_id != self.pass_id):
            self.say_last(m)

    def on_push(self, fact: Push) -> None:
        m = self.member(fact.rank)
        m.state = "pushed"
        m.push = fact
        if self.joint and m.clock < self.floor:
            self.drop(m, "late")
            self.conclude([m])
        self.settle()

    def on_tick(self, fact: Tick) -> None:
        if fact.rank is not None:
            return
        late = [m for m in self.here() if self.heard_s(m) + self.evict_after_s <= fact.time_s]
        returned = [self.remove(m, keeps_share=False) for m in late]
        if late and self.halts:
            self.halt(late[0])
            return
        if any(returned):
            self.supply(self.here())
        self.open_pass()
        self.settle()
        self.set_alarm()

    # ------------------------------------------------------------------- rounds

    def settle(self) -> None:
        self.refresh()
        while self.round_is_complete():
            group = self.held_pushes()
            if self.joint:
                self.floor += 1
            self.judge(group)
            self.conclude(group)
            self.refresh()
        waiting = [m for m in self.here() if m.state == "waiting" and m.leased]
        for m in sorted(waiting, key=lambda m: (m.clock, m.waits_since)):
            self.start_if_allowed(m)
        while self.pass_id is not None and not self.busy() and self.nothing_left():
            self.end_pass()

    def round_is_complete(self) -> bool:
        held = self.held_pushes()
        if not held:
            return False
        if not self.joint:
            return True
        missing = [m for m in self.busy() if m.push is None and m.clock <= self.floor]
        if self.sync:
            return not missing
        return not missing or len(held) >= max(1, self.world_size - self.spares)

    def judge(self, group: list[Life]) -> None:
        full = [m for m in group if m.push.weight > 0]
        spoilt = any(not m.push.finite for m in full)
        if full and not spoilt:
            self.version += 1
            self.progress += sum(len(m.computing) for m in full)
            weight = fsum(m.push.weight for m in full)
            self.out.append(
                Update(
                    ranks=tuple(m.rank for m in full),
                    clocks=tuple(m.clock for m in full),
                    lags=tuple(self.version - 1 - m.pulled_version for m in full),
                    version=self.version,
                    divisor=weight / full[0].push.unit,
                    lr_scale=weight / self.weight_sum() if self.mean else 1.0,
                    weight=weight,
                    progress=self.progress,
                    reason="",
                )
            )
        for m in group:
            if m.push.weight == 0:
                self.drop(m, "empty")
            elif spoilt:
                self.drop(m, "non-finite")

    def drop(self, m: Life, kind: str) -> None:
        batches = tuple(m.computing)
        self.out.append(Drop(rank=m.rank, clock=m.clock, batches=batches, kind=kind, reason=""))

    def conclude(self, group: list[Life]) -> None:
        stop = any(m.push.stop for m in group)
        for m in group:
            if m.state == "pushed":
                m.clock = max(m.clock + 1, self.floor)
            self.refresh()
            self.spent += [(m, b) for b in m.computing]
            m.computing = []
            m.push = None
            if m.state == "pushed":
                m.state = "idle"
        if stop:
            self.stopped = True
            for m in self.here():
                m.leased = []
        self.supply(group)

    def start_if_allowed(self, m: Life) -> None:
        self.refresh()
        m.clock = max(m.clock, self.floor)
        if m.clock - self.floor > self.bound:
            return
        m.computing, m.leased = m.leased[: m.asked.window], m.leased[m.asked.window :]
        m.pulled_version = self.version
        m.state = "running"
        self.out.append(
            Start(
                rank=m.rank,
                clock=m.clock,
                version=self.version,
                batches=tuple(m.computing),
                reason="",
            )
        )

    # -------------------------------------------------------------------- batches

    def supply(self, members: list[Life]) -> None:
        if self.pass_id is None or self.stopped:
            return
        given = self.deal() if self.sync and self.split else self.top_up(members)
        for m, batches in given:
            self.out.append(Lease(rank=m.rank, batches=tuple(batches), last=False, reason=""))
        self.refresh()
        for m, _ in given:
            if m.state == "waiting":
                self.start_if_allowed(m)

    def top_up(self, members: list[Life]) -> list[tuple[Life, list[int]]]:
        given = []
        for m in members:
            if m.state == "gone" or not self.takes_part(m):
                continue
            limit = m.asked.depth
            free = self.free(m)
            if free is not None and self.split:
                fair = ceil(len(free) / (2 * len(self.here())))
                limit = min(limit, max(m.asked.window, fair))
            batches = self.first_free(m, max(0, limit - len(m.leased) - len(m.computing)))
            if batches:
                m.leased += batches
                given.append((m, batches))
        return given

    def deal(self) -> list[tuple[Life, list[int]]]:
        given: dict[Life, list[int]] = {}
        while True:
            players = [m for m in self.slots if self.takes_part(m)]
            full = [
                m
                for m in players
                if len(m.leased) + len(m.computing) + m.asked.window > m.asked.depth
            ]
            if not players or full or self.dry(players[0]):
                return list(given.items())
            window = players[0].asked.window
            for i, batch in enumerate(self.first_free(players[0], window * len(self.slots))):
                slot = self.slots[i % len(self.slots)]
                if self.takes_part(slot):
                    slot.leased.append(batch)
                    given.setdefault(slot, []).append(batch)
                else:
                    self.spent.append((slot, batch))

    def accept(self, m: Life, request: Request) -> bool:
        """Whether others' batches may have vanished."""
        before = self.total(m)
        m.asked = request
        m.out = m.out or request.depth == 0
        self.totals.append((m, request.total))
        total = self.total(m)
        if total is None or total == before:
            return False
        for other in self.here() if self.split else [m]:
            other.leased = [b for b in other.leased if b < total]
            other.computing = [b for b in other.computing if b < total]
        return True

    def break_off(self, m: Life) -> bool:
        m.out = True
        back, m.leased = m.leased, []
        if self.sync or not self.split:
            self.spent += [(m, b) for b in back]
            back = []
        self.supply(self.here() if back else [m])
        return True

    def remove(self, m: Life, keeps_share: bool) -> bool:
        m.out = m.out or keeps_share
        held = sorted(m.leased + ([] if m.push is not None else m.computing))
        m.state = "gone"
        m.next_asked = None
        self.refresh()  # the floor rises as it goes; then its batches come back
        m.leased = []
        if m.push is None:
            m.computing = []
        mine = not self.split or self.pass_id is None or self.stopped or (self.sync and m.out)
        if mine:
            self.spent += [(m, b) for b in held]
        elif m in self.slots:
            self.slots.remove(m)
        returned = () if mine else tuple(held)
        self.out.append(Release(rank=m.rank, clock=m.clock, returned=returned, reason=""))
        return bool(returned)

    # --------------------------------------------------------------------- passes

    def open_pass(self) -> None:
        joined = {f.rank for f in self.history if isinstance(f, Join)}
        asking = [m for m in self.here() if m.next_asked is not None]
        if self.pass_id is not None or len(joined) < self.world_size or not asking:
            return
        if self.sync and len(asking) < len(self.here()):
            return
        self.pass_id = self.last_pass_id = min(m.next_asked.pass_id for m in asking)
        self.stopped = False
        self.totals = []
        self.spent = []
        self.slots = self.here()
        taking = [m for m in asking if m.next_asked.pass_id == self.pass_id]
        self.split = taking[0].next_asked.split
        for m in self.here():
            m.out = m in asking and m not in taking
            if not m.out:
                m.clock = max(m.clock, self.floor)
        for m in taking:
            request, m.next_asked = m.next_asked, None
            self.accept(m, request)
        self.supply(self.here())

    def nothing_left(self) -> bool:
        anyone = Life(rank=-1, clock=0, serial=0)
        return bool(self.here()) or self.stopped or (self.split and self.dry(anyone))

    def end_pass(self) -> None:
        ended, self.pass_id = self.pass_id, None
        for m in self.here():
            m.out = False
            if m.state == "waiting" and m.next_asked is None and m.asked.pass_id == ended:
                self.say_last(m)
        self.open_pass()

    def say_last(self, m: Life) -> None:
        m.state = "idle"
        self.out.append(Lease(rank=m.rank, batches=(), last=True, reason=""))

    # -------------------------------------------------------------------- liveness

    def heard_s(self, m: Life) -> float:
        return max(
            f.time_s for f in self.history[m.serial - 1 :] if getattr(f, "rank", -1) == m.rank
        )

    def set_alarm(self) -> None:
        if isinstance(self.history[-1], Tick):
            self.alarm_s = None
        if self.alarm_s is None and self.here() and self.evict_after_s < inf:
            self.alarm_s = min(self.heard_s(m) for m in self.here()) + self.evict_after_s
            self.out.append(WakeAt(time_s=self.alarm_s, reason=""))

    def halt(self, m: Life) -> None:
        self.halted = True
        self.out.append(Halt(rank=m.rank, reason=""))
