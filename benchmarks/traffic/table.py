"""The table: each way of sending less against dense sync, seed by seed."""

from __future__ import annotations

from statistics import mean, stdev

from rich import box
from rich.table import Table

from traffic.cells import DENSE_SYNC, WAYS, Cell
from traffic.store import Store

_COLUMNS = (
    "strategy", "lr", "seeds", "accuracy", "lost to sync", "exchanges", "of sync's", "bytes of sync's",
    "received", "drift",
)  # fmt: skip


def table(store: Store, *, epochs: int, real: bool) -> Table | None:
    """None if there is nothing to show. ``lost to sync``: points of accuracy, the mean of pairs with its
    standard error; ``received``: by rank 0."""
    baseline = {cell.seed: cell for cell in store.seeds(DENSE_SYNC, epochs=epochs, real=real)}
    if not baseline:
        return None
    how = "real processes" if real else "virtual time"
    shown = Table(
        title=f"4 workers, Fashion-MNIST CNN, {epochs} epochs, {how}",
        title_justify="left", box=box.SIMPLE_HEAD,
    )  # fmt: skip
    for name in _COLUMNS:
        shown.add_column(name, justify="left" if name == "strategy" else "right", no_wrap=True)
    for way in WAYS:
        cells = [c for c in store.seeds(way, epochs=epochs, real=real) if c.seed in baseline]
        if cells:
            shown.add_row(str(way), *_row(store, cells, [baseline[cell.seed] for cell in cells]))
    return shown


def _row(store: Store, cells: list[Cell], baseline: list[Cell]) -> list[str]:
    own = [store.result(cell) for cell in cells]
    of_sync = [store.result(cell) for cell in baseline]
    lost = [a.score - b.score for a, b in zip(of_sync, own, strict=True)]
    error = f" ± {stdev(lost) / len(lost) ** 0.5:.2f}" if len(lost) > 1 else ""
    drift = mean(one.drift for one in own)
    return [
        f"{cells[0].lr:g}",
        str(len(cells)),
        f"{mean(one.score for one in own):.2f} %",
        "" if cells == baseline else f"{mean(lost):+.2f}{error}",
        f"{own[0].exchanges:,}",
        f"1/{of_sync[0].exchanges / own[0].exchanges:.1f}",
        f"{sum(one.sent_bytes for one in own) / sum(one.sent_bytes for one in of_sync):.1%}",
        f"{own[0].received_bytes / 1e6:,.0f} MB" if own[0].received_bytes else "",
        f"{100 * drift:.2g} %" if drift else "",
    ]
