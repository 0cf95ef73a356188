"""The command that chooses a strategy for a run in which one may help, from what was asked for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from paceline.diagnose.cures import CURABLE
from paceline.diagnose.findings import Finding
from paceline.runs import Run

ASKED_FOR = (*CURABLE, "hiccups")


def with_next_command(run: Run, findings: Sequence[Finding]) -> list[Finding]:
    """``findings``, the costliest of which names ``paceline advise`` where a strategy may help."""
    able = [one for one in findings if one.cause in ASKED_FOR]
    if not able:
        return list(findings)
    first = max(able, key=lambda one: one.cost)
    asking = f"Which strategy then trains soonest: {_command(run)}"
    return [
        replace(one, action=f"{one.action}\n{asking}") if one is first else one for one in findings
    ]


def _command(run: Run) -> str:
    request = run.summary.get("request", {})
    cluster = request.get("emulate") or request.get("virtual")
    script = [str(request.get("script") or "SCRIPT"), *map(str, request.get("args") or ())]
    size = ["-n", str(run.setup.world_size)]
    said = shlex.join(
        ["paceline", "advise", *(["--for", str(cluster)] if cluster else []), *size, *script]
    )
    measured = "--for the cluster.toml that 'paceline measure' writes, else for this machine"
    return said if cluster else f"{said} ({measured})"
