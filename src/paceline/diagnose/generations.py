"""The parts of a trace under one Worker each: a script may make several one after another.

Each has its own setup, perhaps another strategy, and counts its windows from 0 again.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from paceline.runs import RankTrace, Run


def last_generation(run: Run) -> tuple[Run, int]:
    """The part of ``run`` under the last Worker that every rank has made, and how many there were."""
    counts = [len(rank.setups) for rank in run.ranks if rank.setups]
    last = min(counts, default=0)
    if last < 2:
        return run, last
    return _under(run, last), last


def generations(run: Run) -> list[Run]:
    """The parts of ``run`` under each of the Workers that every rank has made, in order."""
    made = min((len(rank.setups) for rank in run.ranks if rank.setups), default=0)
    return [_under(run, number) for number in range(1, made + 1)]


def _under(run: Run, number: int) -> Run:
    return replace(run, ranks=tuple(_part(rank, number) for rank in run.ranks if rank.setups))


def _part(rank: RankTrace, number: int) -> RankTrace:
    """What ``rank`` recorded under its Worker ``number``, counted from 1."""
    begun_s = rank.setups[number - 1].time_s
    ended_s = rank.setups[number].time_s if number < len(rank.setups) else inf
    return replace(
        rank, setup=rank.setups[number - 1],
        steps=tuple(one for one in rank.steps if begun_s <= one.time_s < ended_s),
        passes=tuple(one for one in rank.passes if begun_s <= one.time_s < ended_s),
        buckets=tuple(one for one in rank.buckets if begun_s <= one.time_s < ended_s),
        unscheduled=tuple(one for one in rank.unscheduled if begun_s <= one.time_s < ended_s),
        clocks=tuple(one for one in rank.clocks if begun_s <= one.time_s < ended_s),
    )  # fmt: skip
