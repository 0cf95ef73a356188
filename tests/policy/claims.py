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
from policy.world import Worker, World

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
    undecided: Counter[int] = Counter()
    gone: Counter[int] = Counter()  # of those, pushes of an earlier life of the rank
    for event in events(world):
        if isinstance(event, Push):
            undecided[event.rank] += 1
        if isinstance(event, Pull | Push):
            mine = undecided[event.rank] - gone[event.rank]
            assert mine == isinstance(event, Push), event
        if isinstance(event, Release):
            gone[event.rank] = undecided[event.rank]
        for rank in decided_by(event):
            undecided[rank] -= 1
            gone[rank] = max(0, gone[rank] - 1)
    assert world.halted or not undecided.total(), undecided
    assert min(undecided.values(), default=0) >= 0, undecided


def batches_are_computed_once(world: World) -> None:
    """Each batch ends in at most one decided push; only what was given back is started again."""
    passes: dict[int, int] = {}
    holder: dict[tuple[int, int], int] = {}
    windows: dict[int, list[tuple[int, int]]] = {}
    decided: Counter[tuple[int, int]] = Counter()
    pushed: set[int] = set()
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
            pushed.remove(rank)
        if isinstance(event, Push):
            pushed.add(event.rank)
        if isinstance(event, Release) and event.rank not in pushed:
            for key in windows.pop(event.rank, ()):
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
    busy = [w.rank for w in world.workers if w.state == "running" or w.leased] + [
        w.rank for w in world.workers if held and has_not_asked(w, world)
    ]
    for rank in held:
        assert clock(rank) - min(map(clock, busy)) > staleness, f"rank {rank} is held for nothing"


def has_not_asked(worker: Worker, world: World) -> bool:
    """Whether ``worker`` is a member that may still come into the open pass, and holds the others."""
    newest = max(w.passes_done for w in world.workers if w.state == "waiting")
    behind = worker.state == "asked" and worker.passes_done < newest
    return worker.state == "idle" or behind


def decided_by(event: Event) -> tuple[int, ...]:
    """The ranks whose pushes ``event`` decides."""
    if isinstance(event, Update):
        return event.ranks
    return (event.rank,) if isinstance(event, Drop) else ()
