"""How results look in a terminal. Computes no figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.goals import GOALS, verdict_of
from harness.results import Row, Stored

STYLES = {"FAILED": "bold red", "MISSED": "red", "near": "yellow", "ok": "green", "": "dim"}
DECIMALS = {"ms": 3, "share": 4, "/s": 0, "GB/s": 1, "workers": 1, "ratio": 3, "bytes": 0}


def print_rows(console: Console, rows: Iterable[Row], stored: Stored) -> None:
    """The table: value and range, goal, verdict, and what the stored result had."""
    table = Table(title="paceline against its peers", title_justify="left", box=SIMPLE_HEAD)
    for name in ("row", "now", "range", "goal", "", "stored", "now/then"):
        table.add_column(name, justify="left" if name in ("row", "") else "right", no_wrap=True)
    rows = list(rows)
    for row in rows:
        verdict = verdict_of(row.key, row.value, row.failure)
        table.add_row(*_cells(row, stored.rows.get(row.key)), style=STYLES[verdict])
    console.print(table)
    for row in rows:
        if row.failure:
            console.print(f"[bold red]FAILED[/] {row.key}: {escape(row.failure)}", highlight=False)
    if stored.machine:
        console.print(f"stored: {describe(stored.machine)}", style="dim", highlight=False)


def print_notes(console: Console, rows: Iterable[Row]) -> None:
    """What stands behind the figures: step times, and what the parts had to say."""
    for row in rows:
        times = "" if row.ours_s is None else f"{row.ours_s * 1e3:.2f} ms"
        times += "" if row.peer_s is None else f", peer {row.peer_s * 1e3:.2f} ms"
        said = "; ".join(part for part in (times, row.note) if part)
        if said and not row.failure:
            console.print(f"{row.key}: {said}", style="dim", highlight=False)


def print_floors(console: Console, floors: Iterable[tuple[str, int, float, float, Row]]) -> None:
    """Model A: computation, floor, ours, DDP, in milliseconds."""
    table = Table(title="model A against its physical floor, ms", box=SIMPLE_HEAD)
    table.title_justify = "left"
    for name in ("", "computation", "floor", "ours", "DDP", "floor/DDP", "ours/DDP", "ours-floor"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for word, workers, computation_s, floor_s, row in floors:
        assert row.ours_s is not None
        assert row.peer_s is not None
        seconds = [computation_s, floor_s, row.ours_s, row.peer_s]
        shares = [floor_s / row.peer_s, row.ours_s / row.peer_s]
        table.add_row(
            f"{word} N={workers}",
            *[f"{one * 1e3:.0f}" for one in seconds],
            *[f"{one:.2f}" for one in shares],
            f"{(row.ours_s - floor_s) * 1e3:.0f}",
        )
    if table.row_count:
        console.print(table)


def describe(machine: Mapping[str, Any]) -> str:
    """A results file's machine in one line."""
    return (
        f"{machine['date']}, commit {machine['commit']}, {machine['cpu']} x {machine['cores']}, "
        f"torch {machine['torch']}, {machine['pairs']} pairs of {machine['block_s']:g} s"
    )


def _cells(row: Row, then: Row | None) -> list[str]:
    show = _formatter(row.unit)
    goal = GOALS.get(row.key)
    value = "-" if row.value is None else show(row.value) + _suffix(row.unit)
    span = f"{show(min(row.values))}-{show(max(row.values))}" if row.values else ""
    bound = "" if goal is None else f"{'>=' if goal.at_least else '<='} {show(goal.limit)}"
    before = "" if then is None or then.value is None else show(then.value)
    change = f"{row.value / then.value:.2f}" if then and then.value and row.value else ""
    verdict = verdict_of(row.key, row.value, row.failure)
    return [row.key, value, span, bound, verdict, before, change]


def _formatter(unit: str) -> Any:
    decimals = DECIMALS[unit]
    return lambda value: f"{value:,.{decimals}f}"


def _suffix(unit: str) -> str:
    return "" if unit in ("ratio", "share") else f" {unit}"
