"""What was trained so far: one JSON line a cell, appended when it is done, so that nothing is lost."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from traffic.cells import Cell, Result, Way, picking


class Store:
    """The cells at ``path``, and those added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        known = [json.loads(line) for line in lines]
        self._results = {Cell(**one["cell"]): Result(**one["result"]) for one in known}

    def __contains__(self, cell: Cell) -> bool:
        return cell in self._results

    def result(self, cell: Cell) -> Result:
        """What became of ``cell``, which is stored."""
        return self._results[cell]

    def add(self, cell: Cell, result: Result) -> None:
        """Keep what became of ``cell``."""
        self._results[cell] = result
        with self._path.open("a") as file:
            file.write(json.dumps({"cell": asdict(cell), "result": asdict(result)}) + "\n")

    def picked(self, way: Way) -> float | None:
        """The rate whose run on data kept back ended best; None until all have ended."""
        cells = picking(way)
        if not all(cell in self for cell in cells):
            return None
        return max(cells, key=lambda cell: self.result(cell).score).lr

    def seeds(self, way: Way, *, epochs: int, real: bool) -> list[Cell]:
        """The way's cells on test data at the rate that was picked, by seed."""
        wanted = (way, self.picked(way), epochs, False, real)
        found = [
            one
            for one in self._results
            if (one.way, one.lr, one.epochs, one.held_out, one.real) == wanted
        ]
        return sorted(found, key=lambda cell: cell.seed)
