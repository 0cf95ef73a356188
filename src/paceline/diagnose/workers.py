"""What is the matter with a worker that stands out: slow itself, behind a slow link, given more work,
or merely stale. Words what :mod:`.suspects` found; decides nothing about significance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.compare.units import duration, share
from paceline.diagnose.findings import MINOR_COST, Finding, Severity, severity_of
from paceline.diagnose.measured import (
    BACKWARD,
    CODING,
    DATA,
    FORWARD,
    LINK,
    OPTIMIZER,
    SCRIPT,
    Measured,
)
from paceline.diagnose.suspects import COMPUTING, MOST_OF_IT, UNEXPLAINED, Suspect

MIN_EXTRA_LAG = 2.0
STALE_FACTOR = 2.0
"""Stale is who is twice as far behind as the others, and by two updates at least: equal workers under
async all have a mean lag of N - 1."""

NOTABLE = 0.25
"""Among many workers under async one that is a quarter slower costs next to nothing: still, say so."""
DOUBTFUL = 0.1
"""Likelier than that, it is no reason for a doubt either: in one of ten clean runs somebody is."""

_ACTIONS = {
    DATA: "Look at what rank {rank} reads from: its disk or network share, its data set's decoding. "
    "More DataLoader workers (num_workers) there hide it.",
    FORWARD: "Run 'paceline doctor' on rank {rank}'s machine (clocks, temperature, other processes), and "
    "look at what its forward does that the others' do not.",
    BACKWARD: "Run 'paceline doctor' on rank {rank}'s machine (clocks, temperature, other processes), and "
    "look at hooks that run in its backward.",
    COMPUTING: "Its computing is slow as a whole: run 'paceline doctor' on rank {rank}'s machine (clocks, "
    "temperature, other processes, threads).",
    OPTIMIZER: "Look at what runs in rank {rank}'s optimizer step: hooks, logging of weights, memory "
    "that is swapped.",
    SCRIPT: "Rank {rank} does something between two steps that the others do not: logging, saving, "
    "evaluating. Do it less often, or in another process.",
    LINK: "Run 'paceline measure' on these machines, which times every link, and 'paceline doctor' on rank "
    "{rank}'s: negotiated rate, cable, port, or the wrong interface.",
    CODING: "Encoding takes longer there: run 'paceline doctor' on rank {rank}'s machine (clocks, temperature, "
    "other processes, threads).",
    UNEXPLAINED: "No phase alone explains it: run 'paceline doctor' on rank {rank}'s machine (clocks, "
    "other processes, swapping).",
}


def about_workers(found: Measured, suspects: Sequence[Suspect]) -> list[Finding]:
    """A finding for each proven suspect that is worth a word."""
    proven = [(one, about_worker(found, one)) for one in suspects if one.proven]
    return [finding for one, finding in proven if finding.severity != "info" or _notable(one)]


def _notable(suspect: Suspect) -> bool:
    """Whether it is far slower than its peers, although it costs the group little."""
    return suspect.longer >= NOTABLE and suspect.pattern != "transient"


def doubts_about(suspects: Sequence[Suspect]) -> list[str]:
    """Who stands out, but may do so by chance."""
    return [
        f"rank {one.rank} takes {duration(one.excess_s)} longer in {share(one.slow_share)} of its "
        f"windows, but that can be chance (p = {one.chance:.2g}): record a longer run"
        for one in suspects
        if not one.proven and one.chance < DOUBTFUL and one.cost >= MINOR_COST
    ]


def about_worker(found: Measured, suspect: Suspect) -> Finding:
    """The finding about one worker that stands out."""
    own_lag, other_lag = _lags(found, suspect.column)
    stale = own_lag >= max(STALE_FACTOR * other_lag, other_lag + MIN_EXTRA_LAG)
    extra = _extra_weight(found, suspect.column)
    longer = suspect.own_s / max(suspect.typical_s, 1e-9) - 1.0
    evidence = _evidence(found, suspect)
    if stale:
        evidence.insert(
            0,
            f"its gradients are {own_lag:.1f} updates old when they are applied, the others' "
            f"{other_lag:.1f}",
        )
    if extra >= max(MOST_OF_IT * longer, 0.1) and longer > 0:
        return _uneven(suspect, extra, evidence)
    return Finding(
        cause=_cause(suspect, stale), ranks=(suspect.rank,), phase=suspect.phase,
        pattern=suspect.pattern, cost=suspect.cost, sentence=_sentence(suspect, stale, own_lag),
        severity=_severity(suspect.cost, stale), evidence=tuple(evidence),
        action=_ACTIONS[suspect.phase].format(rank=suspect.rank), figures=_figures(suspect, own_lag, other_lag),
    )  # fmt: skip


def _cause(suspect: Suspect, stale: bool) -> str:
    if stale:
        return "stale-worker"
    return "slow-link" if suspect.phase == LINK else "slow-rank"


def _severity(cost: float, stale: bool) -> Severity:
    found = severity_of(cost)
    return "minor" if stale and found == "info" else found  # it costs quality, if not time


def _sentence(suspect: Suspect, stale: bool, lag: float) -> str:
    where = "its link to the others" if suspect.phase == LINK else suspect.phase
    cost = f"It costs {share(suspect.cost)} of the time."
    if stale:
        where = "no single phase" if suspect.phase == UNEXPLAINED else where
        return (
            f"Rank {suspect.rank} is stale: its gradients are {lag:.0f} updates old, because it is slow in "
            f"{where} ({suspect.pattern}). Being slow costs {share(suspect.cost)} of the time."
        )
    if suspect.phase == UNEXPLAINED:
        return f"Rank {suspect.rank} is slow ({suspect.pattern}), in no single phase. {cost}"
    return f"Rank {suspect.rank} is slow in {where} ({suspect.pattern}). {cost}"


def _evidence(found: Measured, suspect: Suspect) -> list[str]:
    lines = [
        f"its own work on a window takes {duration(suspect.own_s)}, the others' "
        f"{duration(suspect.typical_s)} (medians of {found.windows} windows); in "
        f"{share(suspect.slow_share)} of them it takes {duration(suspect.excess_s)} longer",
        _rarity(suspect),
    ]
    if suspect.phase != UNEXPLAINED:
        lines.append(f"{suspect.phase} explains {share(suspect.explained)} of the excess")
    if suspect.pattern == "bursty":
        start, length = suspect.burst
        lines.append(f"the longest burst: {length} windows from number {start} of those compared")
    others = np.delete(found.wait_s, suspect.column, axis=1)
    if found.together and others.any():
        waits = duration(float(others.mean()))
        lines.append(f"meanwhile each of the others waits {waits} a window, mean")
    return lines


def _rarity(suspect: Suspect) -> str:
    rarity = suspect.rarity
    chance = "p < 1e-6" if suspect.chance < 1e-6 else f"p = {suspect.chance:.2g}"
    last = "the last" if suspect.many == 1 else f"among the {suspect.many} last"
    words = {
        "last": f"it was {last} in {rarity.seen} of the {rarity.of} costly windows",
        "longest": f"{rarity.seen} of the {rarity.of} longest windows of all workers are its own",
        "above": f"{rarity.seen} of its {rarity.of} windows are longer than half of the others' are",
    }
    return f"{words[rarity.counted]}; {rarity.by_chance:.0f} would be chance ({chance})"


def _uneven(suspect: Suspect, extra: float, evidence: list[str]) -> Finding:
    return Finding(
        cause="uneven-work", ranks=(suspect.rank,), cost=suspect.cost,
        severity=severity_of(suspect.cost), pattern=suspect.pattern, phase=suspect.phase,
        sentence=f"Rank {suspect.rank} is given {share(extra)} more work than the others, and is "
        f"not slow for its share. It costs {share(suspect.cost)} of the time.",
        evidence=(f"its windows weigh {share(extra)} more", *evidence),
        action="Even out the batches: equal numbers of samples, or of tokens where lengths differ.",
        figures={"extra_weight": extra},
    )  # fmt: skip


def _lags(found: Measured, column: int) -> tuple[float, float]:
    """Mean version lag of this worker and of the typical other one."""
    means = found.lag.mean(axis=0)
    return float(means[column]), float(np.median(np.delete(means, column)))


def _extra_weight(found: Measured, column: int) -> float:
    weights = np.median(found.weight, axis=0)
    typical = float(np.median(np.delete(weights, column)))
    return float(weights[column]) / typical - 1.0 if typical > 0 else 0.0


def _figures(suspect: Suspect, own_lag: float, other_lag: float) -> dict[str, float]:
    return {
        "own_s": suspect.own_s, "typical_s": suspect.typical_s, "excess_s": suspect.excess_s,
        "slow_share": suspect.slow_share, "explained": suspect.explained,
        "chance": suspect.chance, "lag": own_lag, "others_lag": other_lag,
    }  # fmt: skip
