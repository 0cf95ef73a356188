"""Predictions as text for a terminal, and as plain values for JSON. Computes no figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from paceline.compare.units import count, duration, ratio, share
from paceline.simulate.predict import Prediction
from paceline.simulate.scenes import Scene
from paceline.terminal import as_text

WIDTH = 120
SCHEMA = 1

COLUMNS = {
    "time": "until all windows asked for were decided",
    "windows/s": "of all workers together, applied",
    "speed-up": "throughput over that of one worker alone that nothing is wrong with",
    "busy": "share of the workers' time spent on what was applied; a late worker's extra time counts",
    "useful": "the same, each window counted as one of a worker that nothing is wrong with",
    "efficiency": "throughput over that of the same workers if nobody ever waited",
    "waiting": "share of the time that a worker waited or exchanged: mean, and most of all",
    "version lag": "mean over applied pushes, and the largest",
    "dropped": "pushes that came too late for their round",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One row: a strategy in a scene."""

    scene: Scene
    prediction: Prediction


def render(results: Sequence[Result], remarks: Sequence[str] = ()) -> str:
    """The table, and beneath it what has to be said of it."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in head(results):
        table.add_column(name, justify="left" if name in ("late", "strategy") else "right")
    for cells in body(results):
        table.add_row(*cells)
    return "\n\n".join([as_text(table, width=WIDTH), *remarks])


def head(results: Sequence[Result]) -> list[str]:
    """The columns' names."""
    return [*_telling(results), "strategy", *COLUMNS]


def body(results: Sequence[Result]) -> list[list[str]]:
    """The rows' cells, as many as :func:`head` has names."""
    telling = _telling(results)
    return [[*_scene_cells(one, telling), *_cells(one.prediction)] for one in results]


def as_json(results: Sequence[Result], remarks: Sequence[str] = ()) -> str:
    """All figures, in SI units, and what has to be said of them."""
    rows = [_plain(one) for one in results]
    return json.dumps({"schema": SCHEMA, "predictions": rows, "remarks": remarks}, indent=1)


def label_of(result: Result, results: Sequence[Result]) -> str:
    """What tells a row from all others, in words."""
    scene = result.scene
    parts = {
        "workers": f"{scene.workers} workers",
        "late": f"late: {scene.pattern}",
        "shards": f"{scene.shards} shards",
    }
    return ", ".join([result.prediction.strategy, *(parts[name] for name in _telling(results))])


def _telling(results: Sequence[Result]) -> list[str]:
    """The columns in which scenes differ."""
    scenes = [one.scene for one in results]
    counts = {
        "workers": len({scene.workers for scene in scenes}),
        "late": len({scene.pattern for scene in scenes}),
        "shards": len({scene.shards for scene in scenes}),
    }
    return [name for name, count in counts.items() if count > 1]


def _scene_cells(result: Result, telling: Sequence[str]) -> list[str]:
    scene = result.scene
    cells = {"workers": str(scene.workers), "late": scene.pattern, "shards": str(scene.shards)}
    return [*(cells[name] for name in telling), result.prediction.strategy]


def _cells(prediction: Prediction) -> list[str]:
    waits = [wait_s / prediction.time_s for wait_s in prediction.wait_s]
    largest = max((lag for lag, pushes in enumerate(prediction.lags) if pushes), default=0)
    return [
        duration(prediction.time_s),
        count(prediction.windows_per_s),
        ratio(prediction.speed_up),
        share(prediction.busy),
        share(prediction.useful),
        share(prediction.efficiency),
        f"{share(mean(waits))}, {share(max(waits))}",
        f"{prediction.mean_lag:.1f}, {largest}",
        f"{prediction.dropped:,}",
    ]


def _plain(result: Result) -> dict[str, Any]:
    prediction, scene = result.prediction, result.scene
    return {
        "strategy": prediction.strategy,
        "workers": scene.workers,
        "pattern": scene.pattern or None,
        "shards": scene.shards,
        "time_s": prediction.time_s,
        "windows_per_s": prediction.windows_per_s,
        "speed_up": prediction.speed_up,
        "busy": prediction.busy,
        "useful": prediction.useful,
        "efficiency": prediction.efficiency,
        "wait_s": list(prediction.wait_s),
        "mean_lag": prediction.mean_lag,
        "lags": list(prediction.lags),
        "dropped": prediction.dropped,
    }
