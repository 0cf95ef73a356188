"""What the run would take if one thing were different, as a share of what it takes.

The recurrence on the recorded times, in their order, with and without the change (:mod:`.pace`).
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.diagnose.findings import Finding, WhatIf
from paceline.diagnose.measured import LINK, Floats, Measured
from paceline.diagnose.pace import meeting_s, pace_s, relieved_s
from paceline.diagnose.processor import NOT_SCHEDULED
from paceline.errors import UsageError, bad_value
from paceline.strategies import Backup, DiLoCo, Local, Strategy, drifts, is_joint, parse_strategy

ALWAYS = ("sync", "backup:1", "ssp:3", "async")
ALLOWED = "rank:R, link:FACTOR, link:R:FACTOR or strategy:WORD, as in rank:2 or strategy:ssp:3"


def usual(found: Measured, findings: Sequence[Finding]) -> list[WhatIf]:
    """Without what was found, and under each strategy."""
    if found.workers < 2 or not found.windows:
        return []
    return [
        *_without(findings),
        *_meeting_less_often(found, findings),
        *by_strategy(found).values(),
    ]


def by_strategy(found: Measured) -> dict[str, WhatIf]:
    """What each strategy would take, by its word; without the run's own, and what says nothing of it."""
    if found.workers < 2 or not found.windows:
        return {}
    return {word: answer(found, f"strategy:{word}") for word in ALWAYS if _is_new(found, word)}


def _meeting_less_often(found: Measured, findings: Sequence[Finding]) -> list[WhatIf]:
    """What the remedy of an exchange that takes the time would come to."""
    named = [one.figures["local"] for one in findings if "local" in one.figures]
    return [answer(found, f"strategy:{word}") for word in named[:1]]


def _without(findings: Sequence[Finding]) -> list[WhatIf]:
    """What the costs of the findings that name workers come to: no second figure for one thing."""
    starved = [one for one in findings if one.cause == NOT_SCHEDULED]
    slow = [one for one in findings if one.ranks and one.cause != NOT_SCHEDULED]
    ranks = sorted({rank for one in slow for rank in one.ranks})
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    named = [(f"{who} as fast as the others", slow), ("a processor always free", starved)]
    return [
        WhatIf(change=change, time=max(0.0, 1.0 - sum(one.cost for one in group)))
        for change, group in named
        if group
    ]


def answer(found: Measured, text: str) -> WhatIf:
    """The answer to one question, worded as in :data:`ALLOWED`. Raises UsageError if it is none.

    As the costs of findings: as if a processor had always been free.
    """
    found = found.as_scheduled()
    if not found.windows or found.workers < 2:
        raise UsageError(
            f"--what-if {text}: there is nothing to compute with. Ask it of a run of several workers "
            "that have recorded a few windows each."
        )
    kind, _, rest = text.partition(":")
    now_s = pace_s(found.strategy, found.own_s, found.transfer_s)
    if kind == "rank":
        column = _column(found, text, rest)
        own_s = relieved_s(found.own_s, [column], together=found.together)
        time_s = pace_s(found.strategy, own_s, found.transfer_s)
        return WhatIf(change=f"rank {rest} as fast as the others", time=time_s / now_s)
    if kind == "link":
        return _faster_link(found, text, rest, now_s)
    if kind == "strategy" and rest:
        strategy = _fitting(found, parse_strategy(rest))
        time_s = (
            meeting_s(strategy, found.own_s, found.transfer_s + found.hidden_s)
            if isinstance(strategy, Local | DiLoCo)
            else pace_s(strategy, found.own_s, found.transfer_s)
        )
        samples = " (at equal samples)" if isinstance(strategy, Backup) else ""
        return WhatIf(change=f"strategy {rest}{samples}", time=time_s / now_s)
    raise bad_value("what-if", text, ALLOWED)


def _faster_link(found: Measured, text: str, rest: str, now_s: float) -> WhatIf:
    rank, _, factor_text = rest.rpartition(":")
    try:
        factor = float(factor_text)
    except ValueError:
        raise bad_value("what-if", text, ALLOWED) from None
    if not 0 <= factor < float("inf"):
        raise bad_value("what-if", text, "a factor >= 0 on the time of a transfer")
    own_s, transfer_s = found.own_s, found.transfer_s
    if rank:
        column = _column(found, text, rank)
        own_s = _scaled(found, column, factor)
        change = f"what rank {rank} takes longer to exchange than the others, times {factor:g}"
    else:
        transfer_s, change = transfer_s * factor, f"exchanging takes {factor:g} of the time"
    return WhatIf(change=change, time=pace_s(found.strategy, own_s, transfer_s) / now_s)


def _scaled(found: Measured, column: int, factor: float) -> Floats:
    own_s = found.own_s
    own_s[:, column] += (factor - 1.0) * found.phases[LINK][:, column]
    return own_s


def _column(found: Measured, text: str, rank: str) -> int:
    if rank.isdecimal() and int(rank) in found.ranks:
        return found.ranks.index(int(rank))
    raise bad_value("what-if", text, f"one of the ranks {', '.join(map(str, found.ranks))}")


def _is_new(found: Measured, word: str) -> bool:
    if drifts(found.strategy):
        return False  # rows are rounds of several windows, and the word's would be single ones
    strategy = parse_strategy(word)
    if isinstance(strategy, Backup) and strategy.spares >= found.workers:
        return False
    both_sync = found.together and is_joint(strategy) and not isinstance(strategy, Backup)
    return not both_sync and strategy != found.strategy


def _fitting(found: Measured, strategy: Strategy) -> Strategy:
    if drifts(found.strategy):
        raise UsageError(
            f"--what-if strategy:{strategy}: the traces of {found.strategy} and of {strategy} do not "
            "tell of the same rounds. 'paceline simulate' compares them on a cluster's file."
        )
    if drifts(strategy) and found.coding_s.any():
        raise UsageError(
            f"--what-if strategy:{strategy}: this run sent compressed gradients, {strategy} sends whole "
            "parameters, and no trace tells what these take. Run it once without --compress."
        )
    if isinstance(strategy, Backup) and strategy.spares >= found.workers:
        raise bad_value(
            "what-if", f"strategy:{strategy}", f"fewer spares than {found.workers} workers"
        )
    return strategy
