"""A diagnosis as people read it, and as JSON for other programs."""

from __future__ import annotations

import json
from dataclasses import asdict

from paceline.compare.units import ratio
from paceline.diagnose.findings import Diagnosis, Finding

SCHEMA = 1


def render(diagnosis: Diagnosis) -> str:
    """Verdict first; then each finding's evidence and what to do; then what would change."""
    parts = [diagnosis.verdict]
    for number, finding in enumerate(diagnosis.findings):
        parts.append(_finding(finding, heading="" if number == 0 else finding.sentence))
    if diagnosis.findings and diagnosis.doubts:
        parts.append(_block("Not judged", [f"because {doubt}" for doubt in diagnosis.doubts]))
    if diagnosis.remarks:
        parts.append(_block("Note", diagnosis.remarks))
    if diagnosis.what_if:
        lines = [f"{ratio(one.time):>6} of the time: {one.change}" for one in diagnosis.what_if]
        parts.append(_block("What if (the recorded times through the simulator)", lines))
    return "\n\n".join(parts)


def as_json(diagnosis: Diagnosis) -> str:
    """All of it; ``schema`` rises when a field changes its meaning."""
    document = {"schema": SCHEMA, "verdict": diagnosis.verdict, **asdict(diagnosis)}
    return json.dumps(document, indent=2)


def _finding(finding: Finding, *, heading: str) -> str:
    evidence = _block("Evidence", finding.evidence)
    text = f"{evidence}\n{_block('Next', finding.action.splitlines())}"
    return f"{heading}\n\n{text}" if heading else text


def _block(title: str, lines: list[str] | tuple[str, ...]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])
