"""Which trainings answer whether local SGD trains as well as sync. Runs nothing.

Each strategy's learning rate is picked on training data kept back, from a seed used for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

SYNC = "sync"
STRATEGIES = (SYNC, "local:8", "diloco:50", "local:50", "local:inf")
RATES = (0.04, 0.08)
PICK_SEED, PICK_EPOCHS = 100, 3
EPOCHS = 10
OF_SYNC = ("local:inf",)
"""Shown, not judged: at sync's rate."""


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


Picked = Callable[[str], float | None]
"""The learning rate that a strategy was given, None while that is open."""


def picking(strategy: str) -> list[Cell]:
    """The cells that pick ``strategy``'s learning rate."""
    source = SYNC if strategy in OF_SYNC else strategy
    return [
        Cell(strategy=source, lr=lr, seed=PICK_SEED, epochs=PICK_EPOCHS, held_out=True)
        for lr in RATES
    ]


def plan(picked: Picked, seeds: int, real: int) -> Iterator[Cell]:
    """All cells whose rates are known, the most important first."""
    judged = STRATEGIES[:3]
    for strategy in judged:
        yield from picking(strategy)
    yield from _seeds(judged, picked, range(1))
    for strategy in STRATEGIES[3:]:
        yield from picking(strategy)
    yield from _seeds(STRATEGIES[3:], picked, range(1))
    yield from _seeds(judged, picked, range(1, seeds))
    yield from _seeds(judged, picked, range(real), real=True)
    yield from _seeds(STRATEGIES[3:4], picked, range(1, seeds))


def _seeds(
    strategies: tuple[str, ...], picked: Picked, seeds: range, *, real: bool = False
) -> Iterator[Cell]:
    for seed in seeds:
        for strategy in strategies:
            if (lr := picked(strategy)) is not None:
                yield Cell(strategy=strategy, lr=lr, seed=seed, real=real)


def said(cell: Cell) -> str:
    """The cell in words."""
    how, data = "real" if cell.real else "virtual", "held-out" if cell.held_out else "test"
    return f"{cell.strategy} lr {cell.lr:g} seed {cell.seed} {data} {cell.epochs} epochs {how}"
