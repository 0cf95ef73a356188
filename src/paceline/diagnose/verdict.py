"""The verdict on a run: every family of causes is asked, and doubts are said instead of guessed away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from paceline.compare.units import share
from paceline.diagnose.cures import with_cures
from paceline.diagnose.exchange import about_exchange, about_server, whose_time
from paceline.diagnose.findings import SEVERITIES, Diagnosis, Finding, Status
from paceline.diagnose.generations import last_generation
from paceline.diagnose.grouped import Compare, about_groups, in_groups
from paceline.diagnose.loss import about_loss
from paceline.diagnose.measured import Measured, measured
from paceline.diagnose.next_commands import with_next_command
from paceline.diagnose.origin import with_origin
from paceline.diagnose.processor import about_processor
from paceline.diagnose.remedies import with_remedies
from paceline.diagnose.rounds import about_rounds
from paceline.diagnose.suspects import suspects
from paceline.diagnose.threads import about_threads
from paceline.diagnose.throttled import with_clocks
from paceline.diagnose.what_if import answer, usual
from paceline.diagnose.workers import about_workers, doubts_about
from paceline.runs import Run
from paceline.strategies import drifts

MIN_WINDOWS = 20
"""Rounds that must have been recorded: with two workers, 10 costly rounds are the fewest in which
always being last is not chance (2^-10 x tests)."""
MIN_OWN_WINDOWS = 6
"""Where nobody goes in rounds, windows of a worker: a very slow one has few, but each is far out."""
NOTABLE_WAIT = 0.1
_LAST = "The script made {made} Workers one after another: only the last one is judged."


def diagnose(run: Run, questions: Sequence[str] = ()) -> Diagnosis:
    """The verdict on ``run``, as far as it has come; ``questions``: what-ifs besides the usual ones.

    Raises UsageError for a question that cannot be asked of this run.
    """
    run, workers_made = last_generation(run)
    found = measured(run)
    most = max(len(rank.steps) for rank in run.ranks)
    thin = thin_evidence(found, world_size=run.setup.world_size, most=most)
    server = [] if thin else about_server(run, found)
    compare = partial(compared, exchange=not server, whose=whose_time(run))
    findings = [] if thin else _compared(run, found, compare)
    findings = with_clocks(run, findings)
    findings += [*server, *about_threads(run), *about_loss(run)]
    starved = [] if thin else about_processor(run, found)
    findings = credible(findings, starved)
    findings, starved = (findings, starved) if findings else (starved, [])
    findings = with_remedies(run, found, findings)
    findings = with_next_command(run, with_origin(run, findings))
    diagnosis = concluded(str(run.directory), found, findings, thin, questions)
    if in_groups(run):
        diagnosis = replace(diagnosis, what_if=())  # nobody has worked them out for groups
    remarks = [run.missing] if run.missing else []
    remarks += [one.sentence for one in starved]
    remarks += [_LAST.format(made=workers_made)] if workers_made > 1 else []
    return replace(diagnosis, remarks=(*diagnosis.remarks, *remarks), going_on=run.goes_on)


def credible(findings: Sequence[Finding], starved: Sequence[Finding]) -> list[Finding]:
    """Without links that cost less than the waiting for processors: a starved server looks like one."""
    least = max((one.cost for one in starved), default=0.0)
    return [one for one in findings if one.cause != "slow-link" or one.cost > least]


def compared(
    found: Measured, *, exchange: bool = True, whose: str = "communication-bound"
) -> list[Finding]:
    """What comes of holding the workers against each other."""
    about = about_workers(found, suspects(found))
    about += about_exchange(found, whose) if exchange else []
    return about or about_rounds(found)


def _compared(run: Run, found: Measured, compare: Compare) -> list[Finding]:
    if not in_groups(run):
        return with_cures(found, compare(found))
    return about_groups(run, compare, lambda one: one.windows >= MIN_OWN_WINDOWS)


def concluded(
    name: str,
    found: Measured,
    findings: Sequence[Finding],
    thin: Sequence[str],
    questions: Sequence[str],
) -> Diagnosis:
    """The diagnosis that ``findings`` amount to. ``thin``: why workers were not compared, if so."""
    ordered = sorted(findings, key=lambda one: (-SEVERITIES.index(one.severity), -one.cost))
    named = any(one.ranks for one in ordered)
    doubts = list(thin) or ([] if named else doubts_about(suspects(found)))
    asked = [answer(found, text) for text in questions]
    return Diagnosis(
        run=name, status=_status(ordered, doubts), findings=tuple(ordered),
        doubts=tuple(doubts), remarks=tuple(_remarks(found)),
        what_if=tuple({one.change: one for one in (*asked, *usual(found, ordered))}.values()),
    )  # fmt: skip


def thin_evidence(found: Measured, *, world_size: int, most: int) -> list[str]:
    """Why workers cannot be held against each other, if so; ``most``: windows of the fastest."""
    missing = sorted(set(range(world_size)) - set(found.ranks))
    if missing:
        names = ", ".join(map(str, missing))
        return [f"the traces of {len(missing)} of {world_size} workers are missing (rank {names})"]
    rows = "rounds" if drifts(found.strategy) and found.together else "windows"
    needed = MIN_WINDOWS if found.together else MIN_OWN_WINDOWS
    if found.windows < needed or most < MIN_WINDOWS:
        return [
            f"only {found.windows} {rows} of every worker can be compared, {needed} are needed: "
            "record a longer run"
        ]
    return []


def _status(findings: Sequence[Finding], doubts: Sequence[str]) -> Status:
    if findings:
        return "finding"
    return "undecided" if doubts else "well"


def _remarks(found: Measured) -> list[str]:
    """Who waits shows 100 % utilisation: the most common misreading of a dashboard."""
    if not found.windows or not found.together or found.topology != "allreduce":
        return []
    waits = found.wait_s.mean(axis=0) / found.cycle_s
    late = found.ranks[int(np.argmin(waits))]
    waiting = [
        f"rank {rank} ({share(part)} of the time)"
        for rank, part in zip(found.ranks, waits, strict=True)
        if part >= NOTABLE_WAIT and rank != late
    ]
    if not waiting:
        return []
    return [
        f"Waiting inside a collective, mostly for rank {late}: {', '.join(waiting)}. A card that "
        "waits in a collective shows 100 % utilisation: it is not the busy ones that are slow."
    ]


def nothing_yet(name: str) -> Diagnosis:
    """Of a run that has recorded nothing to judge yet."""
    return Diagnosis(
        run=name, status="undecided", findings=(), remarks=(), what_if=(), going_on=True,
        doubts=("the run has recorded nothing yet: ask again in a moment",),
    )  # fmt: skip
