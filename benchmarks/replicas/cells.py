"""Which trainings answer whether local SGD trains as well as sync. Runs nothing.

One learning rate for all, sync's best of two on training data kept back, from a seed used for nothing
else: the question is what becomes of a run whose strategy's word is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SYNC = "sync"
STRATEGIES = (SYNC, "local:8", "diloco:50", "local:50", "local:inf")
JUDGED = 3
"""The first so many are what was promised; the others are for comparison."""
RATES = (0.04, 0.08)
PICK_SEED, PICK_EPOCHS = 100, 3
EPOCHS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One training. ``real``: on processes of its own, else in virtual time."""

    strategy: str
    lr: float
    seed: int
    epochs: int = EPOCHS
    held_out: bool = False
    real: bool = False
    workers: int = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """``score``: accuracy in per cent. ``exchanges``, ``sent_bytes``: of rank 0, in ``windows`` windows.
    ``drift``: its replica's distance from the mean as the last pass ended, over the mean's norm."""

    score: float
    windows: int
    exchanges: int
    sent_bytes: int
    drift: float
    wall_s: float


def picking() -> list[Cell]:
    """The cells that pick the learning rate."""
    return [
        Cell(strategy=SYNC, lr=lr, seed=PICK_SEED, epochs=PICK_EPOCHS, held_out=True)
        for lr in RATES
    ]


def plan(lr: float | None, epochs: int, seeds: int, real: int) -> Iterator[Cell]:
    """All cells, the most important first; only those that pick the rate while it is open."""
    yield from picking()
    if lr is None:
        return
    for seed in range(seeds):
        for strategy in STRATEGIES[:JUDGED]:
            yield Cell(strategy=strategy, lr=lr, seed=seed, epochs=epochs)
    for strategy in STRATEGIES[JUDGED:]:
        yield Cell(strategy=strategy, lr=lr, seed=0, epochs=epochs)
    for seed in range(real):
        for strategy in STRATEGIES[:JUDGED]:
            yield Cell(strategy=strategy, lr=lr, seed=seed, epochs=epochs, real=True)


def said(cell: Cell) -> str:
    """The cell in words."""
    how, data = "real" if cell.real else "virtual", "held-out" if cell.held_out else "test"
    return f"{cell.strategy} lr {cell.lr:g} seed {cell.seed} {data} {cell.epochs} epochs {how}"
