"""Claims about a finished schedule, each checked from the log of facts and orders alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import inf

from paceline.events import (
    Drop,
    Fact,
    Join,
    Order,
    Pull,
    Push,
    Release,
    Request,
    Start,
    Update,
)
from policy.world import World

Event = Fact | Order


def events(world: World) -> Iterator[Event]:
    """Facts and orders in the order in which they happened."""
    for fact, orders in world.log:
        yield fact
        yield from orders


def sees_all_updates_below(world: World, staleness: float) -> None:
    """A worker at clock c has seen every update of clock <= c - s - 1: none comes later."""
    must_be_seen = -inf
    for event in events(world):
        if isinstance(event, Start):
            must_be_seen = max(must_be_seen, event.clock - staleness - 1)
        if isinstance(event, Update):
            assert min(event.clocks) > must_be_seen, event


def lags_are_true_and_bounded(world: World, staleness: float) -> None:
    """lag = updates since the pull <= (2s+1) x the other workers (lives) that made them."""
    lives: Counter[int] = Counter()
    pulled: dict[int, int] = {}
    made_by: list[tuple[int, int]] = []
    for event in events(world):
        if isinstance(event, Join):
            lives[event.rank] += 1
        if isinstance(event, Start):
            pulled[event.rank] = event.version
        if isinstance(event, Update):
            for rank, lag in zip(event.ranks, event.lags, strict=True):
                since = made_by[pulled[rank] :]
                others = {who for who in since if who != (rank, lives[rank])}
                assert lag == len(since), event
                assert lag == 0 or lag <= (2 * staleness + 1) * len(others), event
            made_by.append((event.ranks[0], lives[event.ranks[0]]))


def pushes_are_decided_once(world: World) -> None:
    """Every push ends in exactly one Update or Drop, and nobody pulls before that."""
    open_pushes: set[int] = set()
    for event in events(world):
        if isinstance(event, Push):
            assert event.rank not in open_pushes
            open_pushes.add(event.rank)
        if isinstance(event, Pull):
            assert event.rank not in open_pushes
        for rank in decided_by(event):
            open_pushes.remove(rank)
    assert world.halted or not open_pushes


def batches_are_computed_once(world: World) -> None:
    """Each batch ends in at most one decided push; only what was given back is started again."""
    passes: dict[int, int] = {}
    holder: dict[tuple[int, int], int] = {}
    windows: dict[int, list[tuple[int, int]]] = {}
    decided: Counter[tuple[int, int]] = Counter()
    for event in events(world):
        if isinstance(event, Request):
            passes[event.rank] = event.pass_id
        if isinstance(event, Start):
            windows[event.rank] = [(passes[event.rank], batch) for batch in event.batches]
            for key in windows[event.rank]:
                assert key not in holder, f"{event}: batch is with rank {holder[key]}"
                holder[key] = event.rank
        for rank in decided_by(event):
            decided.update(windows.pop(rank))
        if isinstance(event, Release):
            for key in windows.get(event.rank, ()):
                if key[1] in event.returned:
                    del holder[key]
    assert max(decided.values(), default=0) <= 1
    if whole_passes_expected(world):
        expected = {(p, b) for p in range(world.scene.passes) for b in range(world.scene.end)}
        assert {key for key in decided if key[1] < world.scene.end} == expected


def whole_passes_expected(world: World) -> bool:
    """Whether nothing happened that may leave batches out; deaths alone may not.

    (Where batches are dealt, those of a pass that all its workers have left are not.)
    """
    scene = world.scene
    dealt = scene.strategy.startswith("sync") or scene.strategy == "ssp:0"
    orphaned = dealt and world.left_early and world.late_join
    finished = any(worker.passes_done == scene.passes for worker in world.workers)
    return finished and not (world.halted or world.stopped or world.gave_up or orphaned)


def nobody_waits_for_ever(world: World) -> None:
    """Everybody who could do something has done it, and nobody is owed an order."""
    assert world.halted or not world.waiting(), world.waiting()


def slowest_is_never_held(world: World, clock: Callable[[int], int], staleness: float) -> None:
    """Now: who waits with batches in hand leads somebody that is busy by more than the bound.

    So the slowest never waits, and a lead of exactly s may start.
    """
    held = [w.rank for w in world.workers if w.state == "waiting" and w.leased]
    busy = [w.rank for w in world.workers if w.state in ("running", "idle") or w.leased]
    for rank in held:
        assert clock(rank) - min(map(clock, busy)) > staleness, f"rank {rank} is held for nothing"


def decided_by(event: Event) -> tuple[int, ...]:
    """The ranks whose pushes ``event`` decides."""
    if isinstance(event, Update):
        return event.ranks
    return (event.rank,) if isinstance(event, Drop) else ()
