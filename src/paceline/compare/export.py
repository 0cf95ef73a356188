"""A comparison as JSON, for other programs. SI units, as in :class:`~paceline.compare.figures.Figures`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from paceline.compare.rows import Row, remarks
from paceline.compare.target import Target

FORMAT_VERSION = 1


def as_json(
    rows: Sequence[Row], target: Target | None, *, report: str, notes: Sequence[str] = ()
) -> str:
    """The rows with all their figures. Numbers that JSON cannot hold (inf, NaN) become null."""
    document = {
        "format_version": FORMAT_VERSION,
        "target": None if target is None else str(target),
        "rows": [asdict(row) for row in rows],
        "remarks": [*notes, *remarks(rows, target)],
        "report": report,
    }
    return json.dumps(_holdable(document), indent=2)


def _holdable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _holdable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_holdable(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value
