"""An advice as text for a terminal, and as plain values for JSON. Decides nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from paceline.advise.advice import Advice
from paceline.advise.outcomes import Candidate, Outcome, Summary
from paceline.advise.pace import Pace
from paceline.compare.units import count, duration, ratio
from paceline.terminal import as_text
from paceline.values import exact

SCHEMA = 1
NOTHING = "–"
COLUMNS = ("to target", "samples", "throughput", "seeds", "loss against sync's")
FLAGS = {"accumulate": "--accumulate", "clip_norm": "--clip-norm", "recipe": "--recipe",
         "precision": "--precision", "batch_norm": "--batch-norm"}  # fmt: skip


def render(advice: Advice, pace: Pace | None, command: str) -> str:
    """Answer, table, reasons, what would change it, what to run next."""
    parts = [advice.answer, ""]
    if advice.rows and pace is not None:
        parts += [f"target: {advice.target}", _table(advice.rows, pace), ""]
    parts += ["Why:", *_listed(advice.reasons)] if advice.reasons else []
    parts += ["", "What would change it:", *_listed(advice.changes)] if advice.changes else []
    parts += ["", "Next:", f"  {command}"] if command else []
    return "\n".join(parts)


def next_command(
    choice: Candidate | None, script: str, args: Sequence[str], *, emulate: str | None = None
) -> str:
    """The ``paceline run`` that is recommended."""
    if choice is None:
        return ""
    words = ["paceline", "run"]
    if choice.workers > 1:
        words += ["-n", str(choice.workers), "--strategy", choice.trial.strategy]
    for name, value in choice.trial.options:
        words += [FLAGS[name], exact(value) if isinstance(value, float) else str(value)]
    if choice.trial.lr_factor != 1.0:
        words += ["--lr-factor", exact(choice.trial.lr_factor)]
    words += ["--emulate", emulate] if emulate else []
    return shlex.join([*words, script, *args])


def as_json(
    advice: Advice, outcomes: Sequence[Outcome], command: str, report: str
) -> str:  # fmt: skip
    """Everything in SI units; numbers that JSON cannot hold become null."""
    document = {
        "schema": SCHEMA,
        "answer": advice.answer,
        "target": None if advice.target is None else str(advice.target),
        "choice": None if advice.choice is None else str(advice.choice),
        "rows": [_plain(row) for row in advice.rows],
        "reasons": advice.reasons,
        "changes": advice.changes,
        "bandwidth_bytes_per_s": advice.bandwidth_bytes_per_s,
        "rival": None if advice.rival is None else str(advice.rival),
        "next": command or None,
        "report": report or None,
        "probes": [
            {"candidate": str(one.candidate), "seed": one.seed, "took_s": one.took_s, "failure": one.failure}
            for one in outcomes
        ],
    }  # fmt: skip
    return json.dumps(document, indent=2)


def _plain(row: Summary) -> dict[str, Any]:
    values = asdict(row)
    values["candidate"] = str(row.candidate)
    values["stability"] = None if row.stability is None else row.stability.word
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in values.items()
    }


def _table(rows: Sequence[Summary], pace: Pace) -> str:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(str(row.candidate), *_cells(row, pace))
    return as_text(table)


def _cells(row: Summary, pace: Pace) -> list[str]:
    spread = f" ± {duration(row.spread_s)}" if row.spread_s and row.usable else ""
    speed_up = pace.batches_per_s(row.candidate) / pace.batches_per_s(
        Candidate(trial=row.candidate.trial, workers=1)
    )
    return [
        f"{duration(row.time_s)}{spread}" if row.usable else "not reached",
        count(row.samples) if row.usable else NOTHING,
        ratio(speed_up),
        f"{row.reached} of {row.seeds}",
        NOTHING if row.stability is None else str(row.stability),
    ]


def _listed(sentences: Sequence[str]) -> list[str]:
    return [f"  * {sentence}" for sentence in sentences]
