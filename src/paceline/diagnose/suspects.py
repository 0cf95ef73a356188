"""Which workers hold the others up, in what phase, and by what pattern: the statistics of an accusation.

Three things must come together before a worker is named, so that noise accuses nobody:

* **effect**: its own work takes a tenth longer than the others' (mean excess over their median), and
  twice as much longer as the typical worker's does;
* **cost**: without its excess the run would be shorter (:mod:`.pace`);
* **significance**. Where workers go in rounds: of the costliest rounds it was the last far more often
  than Binomial(K, 1/N) allows (Bonferroni over workers and tests). The costliest rounds are the fewest
  that make up half, or four fifths, of all that is lost: a straggler that is always late and one that
  hiccups now and then both show, and which rounds they are does not depend on who was last. Elsewhere:
  its windows lie beyond the others' 90 or 99 % quantile more often than chance allows.

What these workers suffer from, and what to do about it, is for others to say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.diagnose.chance import binomial_tail, clustering, longest_run
from paceline.diagnose.measured import BACKWARD, FORWARD, PHASES, Floats, Measured
from paceline.diagnose.pace import others_s, relieved_s, saving

Flags = npt.NDArray[np.bool_]
Wholes = npt.NDArray[np.int64]

MIN_EXCESS = 0.1
"""Share of the others' time. Equal machines differ by a few per cent, and so do repeated runs."""
STANDS_OUT = 2.0
"""Times the typical worker's excess: under hiccups that hit everybody each has some."""
MAX_CHANCE = 0.01
"""Probability, over all workers and tests, that a clean run looks like this."""
COSTLIEST = (0.5, 0.8)
TAILS = (0.1, 0.01)
MOST_OF_IT = 0.8
"""A phase is the cause if it explains that share of the excess (FORMULAS)."""
ALMOST_ALWAYS, MOSTLY = 0.8, 0.5
IN_ONE_PIECE = 0.5
"""Of the runs that random order would give: fewer, and what is slow comes in bursts."""
SHORTEST_BURST = 4
UNEXPLAINED, COMPUTING = "unexplained", "forward and backward"


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """A worker that stands out. ``excess_s``: of its own work on a window, mean over the windows in
    which it is slow; ``own_s``, ``typical_s``: its median and the others'; ``slow_share``: of its
    windows. ``last`` of the ``costly`` windows, expected ``by_chance``; ``chance``: the probability.
    ``phase`` explains ``explained`` of the excess. ``cost``: its part of what is lost by all suspects.
    ``burst``: first window and length of the longest stretch. ``proven``: whether it may be accused.
    """

    rank: int
    column: int
    excess_s: float
    own_s: float
    typical_s: float
    slow_share: float
    last: int
    costly: int
    by_chance: float
    chance: float
    phase: str
    explained: float
    pattern: str
    burst: tuple[int, int]
    cost: float

    @property
    def proven(self) -> bool:
        """Whether chance is ruled out."""
        return self.chance <= MAX_CHANCE


def suspects(found: Measured) -> list[Suspect]:
    """The workers that stand out in effect, proven or not; the costliest first."""
    if found.workers < 2 or not found.windows:
        return []
    own_s = found.own_s
    typical_s = others_s(own_s, together=found.together)
    excess = (own_s - typical_s).mean(axis=0) / np.maximum(typical_s.mean(axis=0), 1e-9)
    usual = max(0.0, float(np.sort(excess)[(found.workers - 1) // 2]))
    columns = [i for i, e in enumerate(excess) if e >= max(MIN_EXCESS, STANDS_OUT * usual)]
    if not columns:
        return []
    cost = saving(found, relieved_s(own_s, columns, together=found.together))
    parts = excess[columns] / excess[columns].sum()
    named = [
        _suspect(found, i, own_s, typical_s, max(0.0, cost) * part)
        for i, part in zip(columns, parts, strict=True)
    ]
    return sorted(named, key=lambda one: -one.cost)


def _suspect(
    found: Measured, column: int, own_s: Floats, typical_s: Floats, cost: float
) -> Suspect:
    slow = _slow(own_s - typical_s, typical_s, column)
    phase, explained = _phase(found, column, slow)
    last, costly, by_chance, chance = _chance(found, own_s, column)
    return Suspect(
        rank=found.ranks[column], column=column, cost=cost,
        excess_s=float((own_s - typical_s)[slow, column].mean()),
        own_s=float(np.median(own_s[:, column])), typical_s=float(np.median(typical_s[:, column])),
        slow_share=float(slow.mean()), last=last, costly=costly, by_chance=by_chance, chance=chance,
        phase=phase, explained=explained, pattern=_pattern(slow), burst=longest_run(slow.tolist()),
    )  # fmt: skip


def _slow(excess_s: Floats, typical_s: Floats, column: int) -> Flags:
    """In which windows the worker was slow: beyond half of what its costliest windows exceed by.

    Half of the mean excess of the windows that make up four fifths of it: noise is below, all of
    what is wrong above, without knowing beforehand how large that is.
    """
    own = excess_s[:, column]
    heavy = own[_costliest(np.maximum(own, 0.0), MOST_OF_IT)]
    floor_s = max(0.5 * float(heavy.mean()), 0.5 * MIN_EXCESS * float(np.median(typical_s)))
    slow: Flags = own >= min(floor_s, own.max())
    return slow


def _costliest(loss_s: Floats, share: float) -> Wholes:
    """Places of the fewest entries that make up ``share`` of the sum; at least one."""
    order = np.argsort(-loss_s, kind="stable")
    reached = np.cumsum(loss_s[order])
    count = int(np.searchsorted(reached, share * reached[-1])) + 1
    return order[:count]


def _phase(found: Measured, column: int, slow: Flags) -> tuple[str, float]:
    """The phase whose excess over the others' median explains most of the loss, and how much."""
    excess: dict[str, float] = {}
    for name in PHASES:
        times_s = found.phases[name]
        over_s = times_s - others_s(times_s, together=found.together)
        excess[name] = float(over_s[slow, column].mean())
    total_s = sum(excess.values())
    name = max(excess, key=lambda one: excess[one])
    if total_s <= 0:
        return UNEXPLAINED, 0.0
    if excess[name] >= MOST_OF_IT * total_s:
        return name, excess[name] / total_s
    both = (excess[FORWARD] + excess[BACKWARD]) / total_s
    return (COMPUTING, both) if both >= MOST_OF_IT else (UNEXPLAINED, excess[name] / total_s)


def _pattern(slow: Flags) -> str:
    share, flags = float(slow.mean()), slow.tolist()
    if share >= ALMOST_ALWAYS:
        return "persistent"
    if clustering(flags) <= IN_ONE_PIECE and longest_run(flags)[1] >= SHORTEST_BURST:
        return "bursty"
    return "persistent" if share >= MOSTLY else "transient"


def _chance(found: Measured, own_s: Floats, column: int) -> tuple[int, int, float, float]:
    """(how often it stood out, of how many, how many by chance, probability of that or more)."""
    tests = _last_of_the_round(own_s, column) if found.together else _in_the_tail(own_s, column)
    tries = len(tests) * found.workers
    seen, of, share = min(tests, key=lambda test: binomial_tail(*test))
    return seen, of, of * share, min(1.0, tries * binomial_tail(seen, of, share))


def _last_of_the_round(own_s: Floats, column: int) -> list[tuple[int, int, float]]:
    loss_s = own_s.max(axis=1) - np.median(own_s, axis=1)
    last = own_s.argmax(axis=1) == column
    rounds = [_costliest(loss_s, share) for share in COSTLIEST]
    return [(int(last[costly].sum()), len(costly), 1.0 / own_s.shape[1]) for costly in rounds]


def _in_the_tail(own_s: Floats, column: int) -> list[tuple[int, int, float]]:
    rest = np.delete(own_s, column, axis=1)
    beyond = [own_s[:, column] > np.quantile(rest, 1.0 - tail) for tail in TAILS]
    return [
        (int(flags.sum()), len(flags), 2.0 * tail)  # twice: the quantile is an estimate itself
        for flags, tail in zip(beyond, TAILS, strict=True)
    ]
