"""Which trainings answer whether a run with less traffic trains as well as sync. Runs nothing.

One learning rate for all, sync's best on training data kept back, from a seed used for nothing else: the
question is what becomes of a run when one word is changed. Only diloco has a rate of its own, picked in
the same way: its outer step makes every inner one count 0.7 / (1 - 0.9) = 7 times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

SYNC, DENSE = "sync", "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """The two words that say how much is sent."""

    strategy: str = SYNC
    compress: str = DENSE

    @property
    def outer(self) -> bool:
        """It is diloco."""
        return self.strategy.startswith("diloco")

    def __str__(self) -> str:
        return self.strategy if self.compress == DENSE else f"{self.strategy} {self.compress}"


DENSE_SYNC = Way()
JUDGED = (DENSE_SYNC, Way(compress="topk:0.01"), Way(compress="powersgd:4"))
"""What ten pairs were promised of."""
FEWER = (Way(strategy="local:8"), Way(strategy="diloco:50"))
WITHOUT = tuple(
    Way(compress=word)
    for word in (
        "topk:0.01,feedback=off", "topk:0.01,warmup=0", "powersgd:4,feedback=off", "powersgd:4,warmup=0",
    )
)  # fmt: skip
PULLS = tuple(
    Way(strategy="sync:server", compress=f"topk:0.01{pull}")
    for pull in ("", ",pull=topk:0.01", ",pull=int8")
)
"""What comes back from a server is sent as differences."""
OTHERS = (
    *PULLS, *(Way(compress=word) for word in ("sign", "int8", "randomk:0.01")),
    Way(strategy="local:50"), Way(strategy="local:inf"),
)  # fmt: skip
WAYS = (*JUDGED, *WITHOUT, *OTHERS[:-2], *FEWER, *OTHERS[-2:])
"""In the order of the table."""
RATES = {False: (0.04, 0.08, 0.16), True: (0.005, 0.01, 0.02)}
"""Tried for sync, and (True) for diloco."""
PICK_SEED = 100
EPOCHS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One training. ``real``: on processes of its own, else in virtual time."""

    strategy: str = SYNC
    compress: str = DENSE
    lr: float
    seed: int
    epochs: int = EPOCHS
    held_out: bool = False
    real: bool = False
    workers: int = 4

    @property
    def way(self) -> Way:
        """Its two words."""
        return Way(strategy=self.strategy, compress=self.compress)

    def __str__(self) -> str:
        how, data = "real" if self.real else "virtual", "held-out" if self.held_out else "test"
        words = f"{self.way} lr {self.lr:g} seed {self.seed}"
        return f"{words} {data} {self.epochs} epochs {how}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """``score``: accuracy in per cent. ``exchanges``, ``sent_bytes``, ``received_bytes`` (0 where it was
    not looked at): of rank 0, in ``windows`` windows.
    ``drift``: its replica's distance from the mean as the last pass ended, over the mean's norm."""

    score: float
    windows: int
    exchanges: int
    sent_bytes: int
    drift: float
    wall_s: float
    received_bytes: int = 0


def picking(way: Way) -> list[Cell]:
    """The cells that pick the learning rate of ``way``."""
    tried = FEWER[1] if way.outer else DENSE_SYNC
    return [
        Cell(strategy=tried.strategy, lr=lr, seed=PICK_SEED, held_out=True)
        for lr in RATES[way.outer]
    ]


def plan(
    picked: Callable[[Way], float | None], *, epochs: int, seeds: int, real: int
) -> Iterator[Cell]:
    """All cells, the most important first; of what has no rate yet only those that pick it.

    ``seeds`` of what is judged by pairs, at most three (one) of the rest; ``real`` seeds on processes.
    """
    few = min(seeds, 3)
    ways = [
        *((way, seed, False) for seed in range(few) for way in (*JUDGED, *FEWER)),
        *((way, seed, False) for seed in range(few) for way in WITHOUT),
        *((way, seed, True) for seed in range(real) for way in JUDGED),
        *((way, seed, False) for seed in range(few, seeds) for way in JUDGED),
        *((way, 0, False) for way in OTHERS),
    ]
    yield from picking(DENSE_SYNC)
    yield from picking(FEWER[1])
    for way, seed, on_processes in ways:
        if (lr := picked(way)) is not None:
            yield Cell(
                strategy=way.strategy, compress=way.compress, lr=lr, seed=seed, epochs=epochs,
                real=on_processes,
            )  # fmt: skip
