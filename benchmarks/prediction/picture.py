"""Predicted against measured as a picture: each figure a dot, the goal a band."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from paceline.report.svg import LINE_COLOURS
from prediction.rows import LIMIT, Row

TITLES = {"time_s": "wall time, s", "busy": "utilisation"}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Wall times and utilisations as an SVG at ``path``."""
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    for axes, (name, title) in zip(figure.subplots(1, 2), TITLES.items(), strict=True):
        shown = [row for row in rows if row.figure == name]
        ends = np.array([0.0, max((row.measured for row in shown), default=1.0) * 1.05])
        axes.fill_between(
            ends, ends * (1 - LIMIT), ends * (1 + LIMIT), color="0.9", label=f"within {LIMIT:.0%}"
        )
        axes.plot(ends, ends, color="0.6", linewidth=0.8)
        for number, part in enumerate(dict.fromkeys(row.part for row in shown)):
            own = [row for row in shown if row.part == part]
            axes.plot(
                [row.measured for row in own], [row.predicted for row in own], ".",
                color=LINE_COLOURS[number], label=part,
            )  # fmt: skip
        axes.set_xlabel(f"measured {title}")
        axes.set_ylabel(f"predicted {title}")
        axes.legend(loc="upper left")
    figure.savefig(path)
