"""Rows as measured, and the JSON file that keeps them. Knows files, not how anything is measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table. ``value``: the median of ``values`` (None if nothing was measured).

    ``ours_s``, ``peer_s``: median step times behind a ratio. ``note``: what a reader should know.
    ``failure``: the check that did not hold; the value is then worth nothing.
    """

    key: str
    value: float | None
    values: Sequence[float] = ()
    unit: str = "ratio"
    ours_s: float | None = None
    peer_s: float | None = None
    note: str = ""
    failure: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A results file: on which machine, how, and the rows by key."""

    machine: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)


def load(path: Path) -> Stored:
    """The results in ``path``; empty if there is no such file.

    Raises ValueError for a file that this version did not write.
    """
    if not path.exists():
        return Stored()
    data = json.loads(path.read_text())
    if data.get("format") != FORMAT:
        raise ValueError(f"{path}: not a results file of format {FORMAT}; delete it")
    rows = [Row(**{**row, "values": tuple(row["values"])}) for row in data["rows"]]
    return Stored(machine=data["machine"], rows={row.key: row for row in rows})


def save(path: Path, machine: dict[str, Any], rows: Iterable[Row]) -> None:
    """Write ``rows``, whole or not at all."""
    data = {"format": FORMAT, "machine": machine, "rows": [asdict(row) for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(data, indent=1) + "\n")
    fresh.replace(path)


def merged(before: Stored, rows: Iterable[Row]) -> list[Row]:
    """The stored rows with ``rows`` in the place of those of the same key, new ones at the end."""
    return list({**before.rows, **{row.key: row for row in rows}}.values())
