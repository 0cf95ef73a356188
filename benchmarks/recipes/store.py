"""What was trained so far: one JSON line a cell, appended when it is done, so that nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recipes.cells import Cell, Setting, picking


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """``score`` after an epoch, when ``samples`` were trained on and ``time_s`` had passed."""

    time_s: float
    samples: float
    score: float


class Store:
    """The cells at ``path``, and those added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        documents = [json.loads(line) for line in lines]
        self._curves = {
            Cell.of(one["cell"]): [Point(time_s=t, samples=n, score=s) for t, n, s in one["curve"]]
            for one in documents
        }

    def __contains__(self, cell: Cell) -> bool:
        return cell in self._curves

    def curve(self, cell: Cell) -> Sequence[Point]:
        return self._curves[cell]

    def add(self, cell: Cell, curve: Sequence[Point], *, wall_s: float) -> None:
        """Keep what became of ``cell``; ``wall_s``: what it took here."""
        self._curves[cell] = list(curve)
        points = [[round(p.time_s, 3), p.samples, round(p.score, 4)] for p in curve]
        line = {"cell": cell.as_dict(), "curve": points, "wall_s": round(wall_s, 1)}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def picked(self, setting: Setting) -> float | None:
        """The rate whose run on held-out data ended best; None until all have ended."""
        cells = picking(setting)
        if not all(cell in self for cell in cells):
            return None
        return max(cells, key=lambda cell: self.final(cell)).lr

    def final(self, cell: Cell) -> float:
        """The last score; minus infinity if the run broke off or came to nothing."""
        curve = self._curves[cell]
        return curve[-1].score if curve and curve[-1].score == curve[-1].score else float("-inf")

    def seeds(self, setting: Setting, lr: float, *, real: bool = False) -> list[Cell]:
        """The setting's cells on test data, by seed."""
        found = [
            cell
            for cell in self._curves
            if (cell.setting, cell.lr, cell.held_out, cell.real) == (setting, lr, False, real)
        ]
        return sorted(found, key=lambda cell: cell.seed)
