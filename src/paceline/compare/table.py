"""A comparison as text for a terminal of 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from paceline.compare.columns import Column, cause_columns, result_columns
from paceline.compare.rows import Row, remarks
from paceline.compare.target import Target
from paceline.terminal import WIDTH, as_text

GAP = 2


def render(rows: Sequence[Row], target: Target | None = None, notes: Sequence[str] = ()) -> str:
    """The comparison: results, their causes, and what must not be overlooked, ``notes`` first."""
    tables = [result_columns(rows, target), cause_columns(rows)]
    drawn = [_table(rows, group) for columns in tables for group in _fitting(rows, columns)]
    return "\n".join([as_text(*drawn), "", *notes, *_below(rows, target)]).strip("\n")


def _below(rows: Sequence[Row], target: Target | None) -> list[str]:
    seeds = max((len(row.runs) for row in rows), default=0)
    spread = [f"mean ± standard deviation over {seeds} seeds"] if seeds > 1 else []
    return [*spread, *remarks(rows, target)]


def _fitting(rows: Sequence[Row], columns: Sequence[Column]) -> Iterator[list[Column]]:
    """``columns`` in as many groups as it takes for each to fit the width beside the labels."""
    label_width = max(len(row.label) for row in rows) + GAP
    group: list[Column] = []
    used = label_width
    for column in columns:
        width = _width(rows, column) + GAP
        if group and used + width > WIDTH:
            yield group
            group, used = [], label_width
        group.append(column)
        used += width
    yield group


def _width(rows: Sequence[Row], column: Column) -> int:
    """Characters that the column needs: its cells stay on one line, its title may wrap."""
    texts = [*column.title.split(), *(_cells(row, [column])[0] for row in rows)]
    return max(map(len, texts))


def _table(rows: Sequence[Row], columns: Sequence[Column]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in columns:
        title = textwrap.fill(column.title, _width(rows, column), break_long_words=False)
        table.add_column(title, justify="right", vertical="bottom", no_wrap=True)
    for row in rows:
        table.add_row(row.label, *_cells(row, columns))
    return table


def _cells(row: Row, columns: Sequence[Column]) -> list[str]:
    if not row.runs:
        return ["failed", *["" for _ in columns[1:]]]
    return [column.cell(row.runs) for column in columns]
