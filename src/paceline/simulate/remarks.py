"""What has to be said beneath a table of predictions: whether a machine pays, what could be read wrongly.

Reads predictions and what they were made of; simulates nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from paceline.compare.units import duration, ratio, share
from paceline.simulate.network import Network
from paceline.simulate.recorded_ways import RecordedWays
from paceline.simulate.table import Result, label_of
from paceline.strategies import Backup, Strategy, Sync, drifts, parse_strategy

BOTTLENECK = 0.4
"""From two fifths of a window on, the exchange is what to improve (as in ``diagnose/exchange.py``)."""
COMPUTING = 4
"""Times as long as exchanging, four fifths of the time, at the H that is named (as there)."""
ROUNDS = 100
"""So many all-reduces are averaged: links may be jittery."""


def remarks(results: Sequence[Result]) -> list[str]:
    """One sentence or two each."""
    return [
        *_unknown_exchanges(results), *_sizes(results), *_slower_than_one(results),
        *_bottleneck(results), *_lone_pushes(results),
    ]  # fmt: skip


def _strategy(result: Result) -> Strategy:
    return parse_strategy(result.prediction.strategy)


def _meets(strategy: Strategy) -> bool:
    """Whether workers exchange by collectives, if anything."""
    return drifts(strategy) or (isinstance(strategy, Sync) and strategy.topology == "allreduce")


def _unknown_exchanges(results: Sequence[Result]) -> Iterator[str]:
    """A recorded run says nothing of what it did not do."""
    recorded = {
        one.prediction.strategy: ways
        for one in results
        if isinstance(ways := one.scene.scenario.network, RecordedWays) and one.scene.workers > 1
    }
    free = [
        word
        for word, ways in recorded.items()
        if ways.alone or _meets(parse_strategy(word)) != ways.over_network
    ]
    if not free:
        return
    ways = recorded[free[0]]
    yield (
        f"Exchanges are taken to cost nothing under {_listed(free)}: the recorded run {_was(ways)}. That is "
        f"not to be held against a strategy whose exchanges are known; {_remedy(ways)}."
    )


def _was(ways: RecordedWays) -> str:
    if ways.alone:
        return "was of one worker, which exchanges nothing"
    if ways.over_network:
        return "was by all-reduce, and says nothing of pushing to a server and pulling"
    return "was through a server, and says nothing of all-reduces"


def _remedy(ways: RecordedWays) -> str:
    if ways.alone:
        return "record several workers"
    other = "sync:server" if ways.over_network else "sync:allreduce"
    return f"'paceline run --strategy {other}' records the other kind, 'paceline measure' both"


def _sizes(results: Sequence[Result]) -> Iterator[str]:
    if len({one.scene.workers for one in results}) > 1:
        yield (
            "More workers do more windows (--steps is of each), so that time does not compare across "
            "numbers of workers: speed-up does."
        )


def _slower_than_one(results: Sequence[Result]) -> Iterator[str]:
    slower = [
        f"{label_of(one, results)} ({ratio(one.prediction.speed_up)})"
        for one in results
        if one.scene.workers > 1 and one.prediction.speed_up < 1
    ]
    if slower:
        yield (
            f"Slower together than one worker alone: {_listed(slower)}. There further machines do not pay."
        )


def _bottleneck(results: Sequence[Result]) -> Iterator[str]:
    """Of the first number of workers at which exchanging takes much of a window; silent if something against
    that is among the rows."""
    if any(drifts(_strategy(one)) for one in results):
        return
    for one in results:
        scenario, workers = one.scene.scenario, one.scene.workers
        network = scenario.network
        if not isinstance(network, Network) or network.packing is not None or workers == 1:
            continue
        work_s = scenario.cluster.regular_s * scenario.accumulate
        moved_s = float(network.all_reduce_times_s(workers=workers, rounds=ROUNDS).mean())
        if moved_s >= BOTTLENECK * (work_s + moved_s):
            yield _what_sends_less(workers, work_s, moved_s, scenario.accumulate)
            return


def _what_sends_less(workers: int, work_s: float, moved_s: float, accumulate: int) -> str:
    windows = ceil(COMPUTING * moved_s / work_s)
    part = share(moved_s / (work_s + moved_s))
    return (
        f"The network is the bottleneck: an all-reduce of {workers} workers takes {duration(moved_s)}, "
        f"computing a window {duration(work_s)} (exchanging is {part} of both). Less often: --strategies "
        f"local:{windows} (parameters meet every {windows} windows; docs/local.md) or --accumulate "
        f"{windows * accumulate}. Smaller: compressed gradients, push_bytes in [network] "
        "(docs/compression.md). 'paceline compare' shows what these do to the loss."
    )


def _lone_pushes(results: Sequence[Result]) -> Iterator[str]:
    lone = [
        label_of(one, results)
        for one in results
        if isinstance(found := _strategy(one), Backup) and one.scene.workers - found.spares == 1
    ]
    if lone:
        yield (
            f"Under {_listed(lone)} an update is of one worker's gradient, whoever comes first, and all "
            "others' windows of the round are dropped."
        )


def _listed(words: Sequence[str]) -> str:
    words = list(dict.fromkeys(words))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
