"""Rows for people: one line each as they come, and what they amount to."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from prediction.rows import MEDIAN_LIMIT, Row, median_error

UNITS = {
    "time_s": "s",
    "windows_per_s": "/s",
    "knee_workers": "workers",
    "ring_s": "s",
    "window_s": "s",
}


def print_row(console: Console, row: Row) -> None:
    """Predicted, measured, error, verdict."""
    style = "" if row.ok else "red"
    console.print(line(row), style=style, highlight=False, markup=False)


def line(row: Row) -> str:
    """The row as text."""
    verdict = "ok" if row.ok else f"MISSED ({row.limit:.0%})"
    return (
        f"{row.part:<18} {row.scene:<20} {row.strategy:<9} {row.figure:<14} "
        f"{_value(row, row.predicted):>14} {_value(row, row.measured):>14} {row.error:>+7.1%}  "
        f"{verdict}{f'  ({row.note})' if row.note else ''}"
    )


def print_summary(console: Console, rows: Sequence[Row]) -> None:
    """Of each part and figure: how many figures, the median error, the largest, how many missed."""
    for part, figure in dict.fromkeys((row.part, row.figure) for row in rows):
        own = [row for row in rows if (row.part, row.figure) == (part, figure)]
        missed = sum(not row.ok for row in own)
        middle = median_error(own)
        worst = max(own, key=lambda row: abs(row.error))
        goal = f" (goal {MEDIAN_LIMIT:.0%})" if part == "from the file" else ""
        console.print(
            f"{part}, {figure}: {len(own)}, median error {middle:.1%}{goal}, largest "
            f"{worst.error:+.1%} ({worst.scene}, {worst.strategy}), {missed} missed",
            style="red" if missed else "bold", highlight=False,
        )  # fmt: skip


def _value(row: Row, value: float) -> str:
    if row.figure == "busy":
        return f"{value:.1%}"
    return f"{value:.4g} {UNITS[row.figure]}"
