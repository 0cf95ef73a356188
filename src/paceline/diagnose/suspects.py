"""Which workers hold the others up, in what phase, and by what pattern: the statistics of an accusation.

Three things must come together before a worker is named, so that noise accuses nobody:

* **effect**: its own work takes a tenth longer than the others' (mean excess over their median), and
  twice as much longer as the typical worker's does;
* **cost**: without its excess the run would be shorter (:mod:`.pace`);
* **significance**: it is not chance (:mod:`.rarity`; Bonferroni over workers and tests).

What these workers suffer from, and what to do about it, is for others to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from paceline.diagnose.chance import clustering, longest_run
from paceline.diagnose.findings import MINOR_COST
from paceline.diagnose.measured import BACKWARD, FORWARD, PHASES, Floats, Measured
from paceline.diagnose.pace import SHORTEST_S, others_s, relieved_s, saving
from paceline.diagnose.rarity import Rarity, above_the_middle, among_the_costly, costliest

Flags = npt.NDArray[np.bool_]
Count = Callable[[Measured, Floats, int, int], Rarity]

MIN_EXCESS = 0.1
"""Share of the others' time. Equal machines differ by a few per cent, and so do repeated runs."""
STANDS_OUT = 2.0
"""Times the typical worker's excess: under hiccups that hit everybody each has some."""
MAX_CHANCE = 0.003
"""Probability, over all workers and tests, that a clean run looks like this: of forty clean runs, in
nine cases of ten none accuses anybody."""
MOST_OF_IT = 0.8
"""A phase is the cause if it explains that share of the excess (FORMULAS)."""
ALMOST_ALWAYS, MOSTLY = 0.8, 0.5
IN_ONE_PIECE = 0.5
"""Of the runs that random order would give: fewer, and what is slow comes in bursts."""
SHORTEST_BURST = 4
UNEXPLAINED, COMPUTING = "unexplained", "forward and backward"


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """A worker that stands out.

    ``longer``: its mean excess over what a window takes the others, as a share of that. ``excess_s``:
    median over the windows in which it is slow, ``slow_share`` of all; ``own_s``, ``typical_s``: medians,
    its and the others'. ``rarity``: what says that it is not chance, ``chance``: the probability that it
    is. ``phase`` explains ``explained`` of the excess. ``cost``: its part of what is
    lost by all suspects. ``burst``: first window and length of the longest stretch. ``many``: how
    many workers stand out together.
    """

    rank: int
    column: int
    longer: float
    excess_s: float
    own_s: float
    typical_s: float
    slow_share: float
    rarity: Rarity
    chance: float
    phase: str
    explained: float
    pattern: str
    burst: tuple[int, int]
    cost: float
    many: int

    @property
    def proven(self) -> bool:
        """Whether chance is ruled out."""
        return self.chance <= MAX_CHANCE


def suspects(found: Measured) -> list[Suspect]:
    """The workers that stand out in effect, proven or not; the costliest first.

    First in their own work as a whole. Where that is hidden by hiccups that hit everybody, or no phase
    explains it, what is always there may show who it is, or a phase alone: then these are looked at, as
    one more test each. All as if a processor had always been free, cost included: that it was not is no
    worker's fault.
    """
    if found.workers < 2 or not found.windows:
        return []
    found = found.as_scheduled()
    whole = _standing_out(found, found.own_s, tests=1)
    if any(one.proven and one.phase != UNEXPLAINED for one in whole):
        return whole
    used = [name for name in PHASES if found.phases[name].any()]
    tests = len(used) + 1
    usual = _standing_out(found, _without_hiccups(found.own_s), tests, count=above_the_middle)
    if any(_is_clear(one) and one.phase != UNEXPLAINED for one in usual):
        return usual
    by_phase = [_standing_out(found, found.phases[name], tests, name) for name in used]
    clear = [one for named in by_phase for one in named if _is_clear(one)]
    named = [one for stand_out in by_phase for one in stand_out if one.proven]
    if clear:
        return sorted(clear, key=lambda one: -one.cost)[:1]
    always = [one for one in usual if one.proven]
    if always and not any(one.proven for one in whole):
        return always
    return [_in_phase(one, named) for one in whole]


def _is_clear(suspect: Suspect) -> bool:
    return suspect.proven and suspect.cost >= MINOR_COST


def _without_hiccups(times_s: Floats) -> Floats:
    """What is always there: no window of a worker counts as longer than half of its own are."""
    always_s: Floats = np.minimum(times_s, np.median(times_s, axis=0))
    return always_s


def _in_phase(suspect: Suspect, by_phase: Sequence[Suspect]) -> Suspect:
    """``suspect`` with the only phase that alone proves it, if its excess as a whole shows none.

    (Noise of the other phases, as of a server that is kept waiting, may be larger than what is wrong.)
    """
    same = [one for one in by_phase if one.rank == suspect.rank]
    if not suspect.proven or suspect.phase != UNEXPLAINED or len(same) != 1:
        return suspect
    return replace(same[0], cost=suspect.cost)


def _standing_out(
    found: Measured,
    times_s: Floats,
    tests: int,
    phase: str = "",
    count: Count = among_the_costly,
) -> list[Suspect]:
    """Who stands out in ``times_s``: of all own work, or of ``phase``; ``count`` says by what chance."""
    over_s = times_s - others_s(times_s, together=found.together)
    excess = over_s.mean(axis=0) / max(float(np.median(found.own_s)), SHORTEST_S)
    usual = max(0.0, float(np.sort(excess)[(found.workers - 1) // 2]))
    columns = [i for i, e in enumerate(excess) if e >= max(MIN_EXCESS, STANDS_OUT * usual)]
    if not columns:
        return []
    relieved = relieved_s(times_s, columns, together=found.together)
    cost = max(0.0, saving(found, found.own_s - times_s + relieved))
    parts = excess[columns] / excess[columns].sum()
    named = [
        _suspect(
            found,
            times_s,
            over_s,
            Accused(
                column=i,
                cost=cost * part,
                phase=phase,
                many=len(columns),
                tests=tests,
                rarity=count(found, times_s, i, len(columns)),
            ),
        )
        for i, part in zip(columns, parts, strict=True)
    ]
    return sorted(named, key=lambda one: -one.cost)


@dataclass(frozen=True, kw_only=True, slots=True)
class Accused:
    """Who is looked at: ``phase`` if only that is, ``tests``: how many such looks there are; ``many``:
    how many workers stand out together."""

    column: int
    cost: float
    tests: int
    phase: str
    many: int
    rarity: Rarity


def _suspect(found: Measured, times_s: Floats, over_s: Floats, accused: Accused) -> Suspect:
    column, own_s = accused.column, found.own_s
    slow = _slow(over_s[:, column], MIN_EXCESS * float(np.median(own_s)))
    pattern = _pattern(slow)
    always = pattern == "persistent"
    counted = np.ones_like(slow) if always else slow
    excess = _excess_by_phase(found, column, counted, always=always)
    phase = accused.phase or _phase(excess)
    rest = np.delete(own_s, column, axis=1)
    return Suspect(
        rank=found.ranks[column], column=column, cost=accused.cost,
        longer=float(over_s[:, column].mean()) / max(float(np.median(rest)), SHORTEST_S),
        excess_s=float(np.median(over_s[slow, column])),
        own_s=float(np.median(own_s[:, column])), typical_s=float(np.median(rest)),
        slow_share=float(slow.mean()), rarity=accused.rarity,
        chance=min(1.0, accused.rarity.chance * accused.tests), phase=phase,
        explained=_explained(excess, phase),
        pattern=pattern, burst=longest_run(slow.tolist()),
        many=accused.many,
    )  # fmt: skip


def _slow(over_s: Floats, notable_s: float) -> Flags:
    """In which windows the worker was slow: beyond half of what it exceeds by.

    That is its usual excess, if that is most of what it exceeds by: then its own hiccups on top say
    nothing. Else the mean of the windows that make up four fifths of all its excess: noise is below
    half of that, all of what is wrong above, without knowing beforehand how large that is. At least
    half of ``notable_s``.
    """
    exceeds_s = float(np.median(over_s))
    if exceeds_s < max(notable_s, 0.5 * float(over_s.mean())):
        exceeds_s = float(over_s[costliest(np.maximum(over_s, 0.0), MOST_OF_IT)].mean())
    floor_s = max(0.5 * exceeds_s, 0.5 * notable_s)
    slow: Flags = over_s >= min(floor_s, float(over_s.max()))
    return slow


def _excess_by_phase(
    found: Measured, column: int, counted: Flags, *, always: bool
) -> dict[str, float]:
    """Each phase's mean excess over the others' median, in seconds, over the ``counted`` windows.

    Of a worker that is always slow these are all, without hiccups: its slowest alone are those in which
    some other phase happened to be long as well.
    """
    excess: dict[str, float] = {}
    for name in PHASES:
        times_s = _without_hiccups(found.phases[name]) if always else found.phases[name]
        over_s = times_s - others_s(times_s, together=found.together)
        excess[name] = float(over_s[counted, column].mean())
    return excess


def _phase(excess: dict[str, float]) -> str:
    """The phase that explains most of the excess."""
    name = max(excess, key=lambda one: excess[one])
    if _explained(excess, name) >= MOST_OF_IT:
        return name
    return COMPUTING if _explained(excess, COMPUTING) >= MOST_OF_IT else UNEXPLAINED


def _explained(excess: dict[str, float], phase: str) -> float:
    total_s = sum(excess.values())
    parts = (FORWARD, BACKWARD) if phase == COMPUTING else (phase,)
    part_s = sum(excess.get(name, 0.0) for name in parts)
    return min(1.0, max(0.0, part_s / total_s)) if total_s > 0 else 0.0


def _pattern(slow: Flags) -> str:
    share, flags = float(slow.mean()), slow.tolist()
    if share >= ALMOST_ALWAYS:
        return "persistent"
    if clustering(flags) <= IN_ONE_PIECE and longest_run(flags)[1] >= SHORTEST_BURST:
        return "bursty"
    return "persistent" if share >= MOSTLY else "transient"
