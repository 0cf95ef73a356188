"""What a part of the benchmark found: a figure as predicted and as measured. Computes errors only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

LIMIT = 0.10
KNEE_LIMIT = 0.15
MEDIAN_LIMIT = 0.04


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """``figure`` (its unit in its name) of ``strategy`` in ``scene``. ``limit``: of the error.
    ``note``: what a reader must know."""

    part: str
    scene: str
    strategy: str
    figure: str
    predicted: float
    measured: float
    limit: float = LIMIT
    note: str = ""

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.measured - 1.0

    @property
    def ok(self) -> bool:
        """Whether the prediction is as good as it is to be."""
        return abs(self.error) <= self.limit

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "error": self.error, "ok": self.ok}


def median_error(rows: Iterable[Row]) -> float:
    """Of the magnitudes; nan if there are none."""
    errors = [abs(row.error) for row in rows]
    return median(errors) if errors else float("nan")
