"""What helps where the exchange takes the time, besides larger batches: meeting less often, sending less,
sending once for all workers of a host; and the command that tries it.

Only what exists for the run at hand is named. Knows what was found and what was asked for, no times.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from paceline.compare.units import share
from paceline.diagnose.exchange import GOOD_SHARE
from paceline.diagnose.findings import Finding
from paceline.diagnose.measured import Measured
from paceline.runs import Run
from paceline.strategies import Hybrid, Local, drifts

EXCHANGES = ("communication-bound", "batch-too-small", "server-bound", "encoding-bound")
MANY_WINDOWS = 32
"""From there on replicas drift far between two meetings: DiLoCo is made for that (docs/local.md)."""
COMPRESSED = "topk:0.01"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a run's workers were. ``hosts``: how many, None: unknown; ``each``: workers on one."""

    hosts: int | None
    each: int

    @property
    def far(self) -> bool:
        """Whether gradients may have crossed a network."""
        return self.hosts != 1


def with_remedies(run: Run, found: Measured, findings: Sequence[Finding]) -> list[Finding]:
    """``findings``, whose actions go on with what else makes up for exchanges, where they take the time."""
    if drifts(found.strategy):
        return list(findings)
    return [_with(run, found, one) if one.cause in EXCHANGES else one for one in findings]


def _with(run: Run, found: Measured, finding: Finding) -> Finding:
    place, compressed = place_of(run), is_compressed(run, found)
    word = "" if compressed else _local(found, finding)
    lines = [
        _meeting(word, compressed=compressed),
        _sending(place, found, compressed=compressed),
        _grouping(place, found),
    ]
    tries = [word] * bool(word)
    tries += [f"{run.setup.strategy} compress={COMPRESSED}"] if place.far and not compressed else []
    lines.append(_trying(run, place, tries) if tries else "")
    figures = {**finding.figures, "local": word} if word else finding.figures
    evidence = [*finding.evidence, *_accounts(run)]
    action = "\n".join([finding.action, *(line for line in lines if line)])
    return replace(finding, action=action, figures=figures, evidence=tuple(evidence))


def place_of(run: Run) -> Place:
    """Where the workers were, as far as the launcher's summary says it."""
    request: Mapping[str, Any] = run.summary.get("request", {})
    workers = int(request.get("workers") or 1)
    if not request or request.get("emulate") or request.get("virtual"):
        return Place(hosts=None, each=workers)
    hosts = request.get("hosts") or {}
    return Place(hosts=int(hosts.get("count") or 1), each=workers)


def is_compressed(run: Run, found: Measured) -> bool:
    """Whether gradients were sent compressed, by what was asked for or by the time it took."""
    overrides = run.summary.get("request", {}).get("overrides") or {}
    return bool(overrides.get("compress")) or bool(found.coding_s.any())


def _local(found: Measured, finding: Finding) -> str:
    """The word at which computing takes most of the time; "" if it is not known."""
    work_s, moved_s = finding.figures.get("work_s"), finding.figures.get("exchange_s")
    if isinstance(found.strategy, Hybrid) or not work_s or not moved_s:
        return ""
    apart = ceil(GOOD_SHARE / (1 - GOOD_SHARE) * (moved_s + found.hidden_s) / work_s)
    return str(Local(windows=max(2, apart)))


def _meeting(word: str, *, compressed: bool) -> str:
    if compressed:
        return (
            "Or meet less often: --strategy local:H sends whole parameters, but only once in H windows "
            "(docs/local.md)."
        )
    if not word:
        return ""
    windows = int(word.partition(":")[2])
    wide = f", or diloco:{windows}, made for so many," if windows >= MANY_WINDOWS else ""
    return (
        f"Or meet less often: at --strategy {word}{wide} computing takes {share(GOOD_SHARE)} of the time, if "
        "parameters take as long as gradients do now (docs/local.md)."
    )


def _sending(place: Place, found: Measured, *, compressed: bool) -> str:
    if compressed and found.coding_s.any():
        return (
            "Or encode for less: leave --compress out, or take a cheaper one (randomk, powersgd; "
            "docs/compression.md has what each takes)."
        )
    if compressed or not place.far:
        return ""
    where = "" if place.hosts else ", where gradients cross a network,"
    return (
        f"Or send less: --compress {COMPRESSED}{where} sends 2 % of a gradient's bytes, and says at the "
        "run's end whether encoding paid (docs/compression.md)."
    )


def _grouping(place: Place, found: Measured) -> str:
    """Where several workers share a host, and each sends for itself."""
    if isinstance(found.strategy, Hybrid) or not place.far or found.workers < 3:
        return ""
    word = (
        "hybrid:async"
        if found.topology == "allreduce" or found.together
        else f"hybrid:{found.strategy}"
    )
    if place.hosts is None:
        return (
            f"Or, where several workers share a host, send once for all of them: --strategy {word} "
            "(docs/hybrid.md)."
        )
    if place.each < 2:
        return ""
    return (
        f"Or send once for the {place.each} workers of a host, which add up in its memory: --strategy {word} "
        "(docs/hybrid.md)."
    )


def _trying(run: Run, place: Place, tries: Sequence[str]) -> str:
    """The command that shows what they do to speed and loss."""
    request = run.summary.get("request", {})
    script = [str(request.get("script") or "SCRIPT"), *map(str, request.get("args") or ())]
    if place.hosts is not None and place.hosts > 1:
        return (
            f"What these do to the loss: run {' and '.join(map(repr, tries))} as this run was, then "
            "'paceline report RUN RUN ...' (docs/hosts.md)."
        )
    cluster = [
        part
        for key in ("emulate", "virtual")
        if request.get(key)
        for part in (f"--{key}", str(request[key]))
    ]
    words = ["paceline", "compare", "-n", str(run.setup.world_size), *cluster]
    words += [part for one in tries for part in ("--try", one)]
    return f"What these do to the loss: {shlex.join([*words, *script])}"


def _accounts(run: Run) -> list[str]:
    """What the run itself said of its compression."""
    return [note.text for note in run.notes if note.kind == "compression"][:1]
