"""Whose timing a run's is: this machine's, or that of a cluster's file. Knows the summary only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.diagnose.findings import Finding
from paceline.runs import Run

_KINDS = {"emulate": "emulated", "virtual": "simulated"}


def origin(run: Run) -> str:
    """That the timing was made by a cluster's file, in a clause; "" where it is a machine's own."""
    request = run.summary.get("request", {})
    made = [(word, request[key]) for key, word in _KINDS.items() if request.get(key)]
    return "".join(
        f"the timing is {word}: it is that of {file}, not of this machine" for word, file in made
    )


def with_origin(run: Run, findings: Sequence[Finding]) -> list[Finding]:
    """``findings``, the evidence of each of which begins with whose timing it is of."""
    said = origin(run)
    if not said:
        return list(findings)
    return [replace(one, evidence=(said, *one.evidence)) for one in findings]
