"""What ``paceline diagnose`` says of each run, for the report: the same sentences, from the same call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.compare.units import ratio
from paceline.diagnose.findings import Diagnosis, Finding
from paceline.diagnose.verdict import diagnose
from paceline.runs import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One run's. ``what_if``: (how much of the time it would take, what would be different)."""

    label: str
    sentence: str
    findings: tuple[Finding, ...]
    remarks: tuple[str, ...]
    what_if: tuple[tuple[str, str], ...]


def verdicts_of(runs: Mapping[str, Sequence[Run]]) -> list[Verdict]:
    """Of the first run of each label, where several workers may wait for each other."""
    firsts = {label: group[0] for label, group in runs.items()}
    return [
        _verdict(label, diagnose(run))
        for label, run in firsts.items()
        if run.setup.world_size > 1
    ]  # fmt: skip


def _verdict(label: str, diagnosis: Diagnosis) -> Verdict:
    return Verdict(
        label=label, sentence=diagnosis.verdict, findings=diagnosis.findings,
        remarks=diagnosis.remarks,
        what_if=tuple((ratio(one.time), one.change) for one in diagnosis.what_if),
    )  # fmt: skip
