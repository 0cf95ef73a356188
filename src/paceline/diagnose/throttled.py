"""Is a worker that computes slowly held back by its hardware? Its clocks, sampled during the run, say so.

A worker is called throttled only if it was found slow in computing for other reasons; that a clock is
low is no finding by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.compare.units import share
from paceline.diagnose.findings import Finding
from paceline.diagnose.measured import BACKWARD, FORWARD
from paceline.diagnose.suspects import COMPUTING, UNEXPLAINED
from paceline.runs import RankTrace, Run
from paceline.trace import Clocks

LOWER = 0.9
"""A clock is low that is a tenth below the others', or its own before: turbo alone varies by less."""
OFTEN = 0.5
_PHASES = (FORWARD, BACKWARD, COMPUTING, UNEXPLAINED)
_ACTION = (
    "Look at rank {rank}'s cooling, power limit and power supply (nvidia-smi -q -d PERFORMANCE, or the "
    "machine's management log). {rest}"
)


def with_clocks(run: Run, findings: Sequence[Finding]) -> list[Finding]:
    """``findings``, in which who is slow for want of clock is said to be throttled."""
    return [_explained(run, one) for one in findings]


def _explained(run: Run, finding: Finding) -> Finding:
    slow = finding.cause in ("slow-rank", "stale-worker") and finding.phase in _PHASES
    why = _throttling(run, finding.ranks[0]) if slow else ""
    if not why:
        return finding
    rank = finding.ranks[0]
    return replace(
        finding, cause="throttled", evidence=(why, *finding.evidence),
        sentence=f"Rank {rank} is throttled: {why}. It costs {share(finding.cost)} of the time.",
        action=_ACTION.format(rank=rank, rest=finding.action),
    )  # fmt: skip


def _throttling(run: Run, rank: int) -> str:
    """How the clock of ``rank`` is low, and why; "" if it is not."""
    own = next(one for one in run.ranks if one.rank == rank)
    devices = sorted({one.device for one in own.clocks}, reverse=True)  # "cuda:0" before "cpu"
    for device in devices:
        mine = _of(own, _kind(device))
        others = [_of(one, _kind(device)) for one in run.ranks if one.rank != rank]
        low = _low(mine, [one for one in others if one])
        if low:
            return low + _reasons(mine)
    return ""


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _of(rank: RankTrace, kind: str) -> list[Clocks]:
    return [one for one in rank.clocks if _kind(one.device) == kind]


def _low(mine: Sequence[Clocks], others: Sequence[Sequence[Clocks]]) -> str:
    """In what the clock is low: against the others', or where theirs are unknown against before."""
    if not mine:
        return ""
    third = max(1, len(mine) // 3)
    if others:
        then, now_hz = "the others'", _median_hz(mine)
        usual_hz = float(np.median([_median_hz(one) for one in others]))
    else:
        then, now_hz, usual_hz = "before", _median_hz(mine[-third:]), _median_hz(mine[:third])
    return (
        f"its clock is {_ghz(now_hz)}, {then} {_ghz(usual_hz)}" if now_hz < LOWER * usual_hz else ""
    )


def _reasons(mine: Sequence[Clocks]) -> str:
    counts = Counter(reason for one in mine for reason in one.reasons)
    often = [reason for reason, count in counts.items() if count >= OFTEN * len(mine)]
    if mine[-1].throttled > mine[0].throttled:
        often.append(
            f"the processor throttled itself {mine[-1].throttled - mine[0].throttled} times"
        )
    return f" ({', '.join(often)})" if often else ""


def _median_hz(samples: Sequence[Clocks]) -> float:
    return float(np.median([one.hz for one in samples]))


def _ghz(hz: float) -> str:
    return f"{hz / 1e9:.2f} GHz"
