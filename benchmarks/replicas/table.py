"""The table: each strategy against sync, seed by seed."""

from __future__ import annotations

from statistics import mean, stdev

from rich.table import Table

from replicas.cells import STRATEGIES, SYNC, Cell
from replicas.store import Store


def table(store: Store, *, epochs: int, real: bool) -> Table | None:
    """None if there is nothing to show."""
    baseline = {cell.seed: cell for cell in store.seeds(SYNC, epochs=epochs, real=real)}
    if not baseline:
        return None
    how = "real processes" if real else "virtual time"
    shown = Table(
        title=f"4 workers, Fashion-MNIST CNN, {epochs} epochs, {how}", title_justify="left"
    )
    for name in ("strategy", "lr", "seeds", "accuracy", "lost to sync", "exchanges", "of sync's"):
        shown.add_column(name, justify="left" if name == "strategy" else "right")
    shown.add_column("drift", justify="right")
    for strategy in STRATEGIES:
        if cells := store.seeds(strategy, epochs=epochs, real=real):
            shown.add_row(strategy, *_row(store, cells, baseline))
    return shown


def _row(store: Store, cells: list[Cell], baseline: dict[int, Cell]) -> list[str]:
    results = [store.result(cell) for cell in cells]
    pairs = [(store.result(baseline[c.seed]), store.result(c)) for c in cells if c.seed in baseline]
    lost = [of_sync.score - own.score for of_sync, own in pairs]
    error = f" +- {stdev(lost) / len(lost) ** 0.5:.2f}" if len(lost) > 1 else ""
    of_sync, own = pairs[0]
    drift = mean(one.drift for one in results)
    return [
        f"{cells[0].lr:g}",
        str(len(cells)),
        f"{mean(one.score for one in results):.2f} %",
        f"{mean(lost):+.2f}{error}",
        f"{own.exchanges:,}",
        f"1/{of_sync.exchanges / own.exchanges:.1f}",
        f"{100 * drift:.2g} %" if drift else "",
    ]
