"""The tables: each strategy against sync under the same recipe, and what is still missing."""

from __future__ import annotations

from math import inf
from statistics import mean

from rich.table import Table

from recipes.cells import Cell, Setting, source_of_rate
from recipes.figures import mean_curve, standard_error, time_to, upper_bound
from recipes.store import Store

MARGIN = {"fashion": 0.1, "text": 0.02}
"""How far below sync's final score the target of time-to-score lies (points; nats a byte)."""
UNIT = {"fashion": "test accuracy, %", "text": "minus held-out loss, nats a byte"}
COLUMNS = (
    "strategy", "lr", "seeds", "time x", "score", "lost", "90 % bound", "time to score x",
)  # fmt: skip


def tables(store: Store, groups: list[list[Setting]], seeds: int) -> list[Table]:
    """One for each group that has anything to show; each group begins with sync."""
    made = [_table(store, settings, seeds, real) for real in (False, True) for settings in groups]
    return [table for table in made if table.row_count]


def _table(store: Store, settings: list[Setting], seeds: int, real: bool) -> Table:
    first = settings[0]
    how = "real processes" if real else "virtual time"
    title = f"{first.task}, {first.cluster}, recipe {first.recipe}, {how} ({UNIT[first.task]})"
    table = Table(title=title, title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "strategy" else "right")
    baseline = {cell.seed: cell for cell in cells_of(store, first, real)}
    for setting in settings:
        if cells := cells_of(store, setting, real):
            table.add_row(setting.name, *_row(store, cells, baseline, seeds))
    return table


def cells_of(store: Store, setting: Setting, real: bool = False) -> list[Cell]:
    """What is stored of ``setting`` at the learning rate that was picked, by seed."""
    lr = store.picked(source_of_rate(setting))
    return [] if lr is None else store.seeds(setting, lr, real=real)


def _row(store: Store, cells: list[Cell], baseline: dict[int, Cell], seeds: int) -> list[str]:
    scores = [store.final(cell) for cell in cells]
    task = cells[0].setting.task
    digits = 2 if task == "fashion" else 3
    said = [
        f"{cells[0].lr:g}",
        f"{len(cells)} of {seeds}" if len(cells) < seeds else str(len(cells)),
    ]
    pairs = [(cell, baseline[cell.seed]) for cell in cells if cell.seed in baseline]
    if not pairs or -inf in scores:
        return [*said, "", f"{mean(scores):.{digits}f}", "", "", ""]
    times = [store.curve(one)[-1].time_s / store.curve(other)[-1].time_s for one, other in pairs]
    lost = [store.final(other) - store.final(one) for one, other in pairs]
    target = mean(store.final(other) for _, other in pairs) - MARGIN[task]
    reached, needed = (
        time_to(mean_curve([store.curve(pair[side]) for pair in pairs]), target) for side in (0, 1)
    )
    error = standard_error(lost)
    return [
        *said,
        f"{mean(times):.3f}",
        f"{mean(scores):.{digits}f}",
        f"{mean(lost):+.{digits}f}" + (f" +- {error:.{digits}f}" if len(lost) > 1 else ""),
        f"{upper_bound(lost):.{digits}f}" if len(lost) > 1 else "",
        f"{reached / needed:.3f}",
    ]
