"""Which strategy makes up for a worker that stands out, until it is repaired: the what-ifs, in words.

Their figures alone decide, so that no sentence contradicts them; but a bound is never advised against who is
slow for good: in the long run everybody would end at that one's pace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from paceline.compare.units import ratio
from paceline.diagnose.findings import MINOR_COST, Finding
from paceline.diagnose.measured import Measured
from paceline.diagnose.what_if import answer, by_strategy
from paceline.strategies import SSP, Backup, Strategy, parse_strategy

CURABLE = ("slow-rank", "slow-link", "stale-worker")
NOTHING = 0.02
"""A saving below that is none: only then is it said that no bound helps."""
NO_BOUND = "No bound of SSP helps against one that is always slow."
OLD_GRADIENTS = "--recipe stable, or a lower rate (--lr-factor 0.33)"

Times = Mapping[str, float]
"""Strategy's word: the time it would take, as a share of now."""


def with_cures(found: Measured, findings: Sequence[Finding]) -> list[Finding]:
    """``findings``, whose actions go on with what strategy helps meanwhile, if one does."""
    if not any(one.cause in CURABLE for one in findings):
        return list(findings)
    times = {word: one.time for word, one in by_strategy(found).items()}
    return [
        replace(one, action=f"{one.action}\n{_cure(found, one, times)}".strip())
        if times and one.cause in CURABLE
        else one
        for one in findings
    ]


def _cure(found: Measured, finding: Finding, times: Times) -> str:
    if found.together:
        return _of_rounds(finding.pattern, times)
    if _is_bounded(found.strategy):
        return f"{NO_BOUND} {_until(times)}" if finding.pattern == "persistent" else ""
    if finding.cause != "stale-worker":
        return ""
    return _of_old_gradients(found, finding, times)


def _of_rounds(pattern: str, times: Times) -> str:
    bound_helps = "ssp:3" in _helping(times)
    if pattern == "persistent":
        saves = times.get("ssp:3", 1.0) <= 1.0 - NOTHING
        return f"{_only_hiccups(times) if saves else NO_BOUND} {_until(times)}"
    where = "Look for what runs there at these times (a backup, a neighbour's job). "
    hidden = "bursts up to its length" if pattern == "bursty" else "hiccups"
    until = f"Until then {_shown('ssp:3', times)} hides {hidden}: others go on meanwhile."
    return (where if pattern == "bursty" else "") + (until if bound_helps else _until(times))


def _only_hiccups(times: Times) -> str:
    return (
        f"ssp:3 hides only the hiccups beside it ({ratio(times['ssp:3'])} of the time): any bound ends at the "
        "pace of one that is always slow."
    )


def _until(times: Times) -> str:
    """Who helps, bounds left out."""
    helping = [word for word in _helping(times) if not _is_bounded(parse_strategy(word))]
    if not helping:
        return "No other strategy makes up for it."
    said = f"Until it is repaired: {' or '.join(_shown(word, times) for word in helping)}."
    cost = f" Old gradients may cost accuracy: {OLD_GRADIENTS}."
    return said + cost if "async" in helping else said


def _of_old_gradients(found: Measured, finding: Finding, times: Times) -> str:
    if finding.pattern != "persistent":
        bound = answer(found, "strategy:ssp:8").time
        return f"Until then a bound limits how old its gradients get: ssp:8 ({ratio(bound)} of the time)."
    rounds = [_shown(word, times) for word in ("backup:1",) if word in times]
    instead = f", or {rounds[0]}, which waits for all but the last" if rounds else ""
    return (
        f"{NO_BOUND} If its old gradients cost accuracy: {OLD_GRADIENTS}{instead}, "
        "or leave it out until it is repaired."
    )


def _helping(times: Times) -> list[str]:
    """Strategies that save what is worth a word, the fastest first."""
    worth = [word for word, time in times.items() if time <= 1.0 - MINOR_COST]
    return sorted(worth, key=lambda word: times[word])


def _shown(word: str, times: Times) -> str:
    samples = ", at equal samples" if isinstance(parse_strategy(word), Backup) else ""
    return f"{word} ({ratio(times[word])} of the time{samples})"


def _is_bounded(strategy: Strategy) -> bool:
    """Whether a gate limits how far ahead, and how old, anybody's gradients are."""
    return isinstance(strategy, SSP) and 0 < strategy.staleness < inf
