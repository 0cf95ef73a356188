"""Measured time to target of every candidate, a panel a cluster: what the documentation shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

CHOSEN, OTHER = "#D55E00", "#0072B2"
PANELS_A_ROW = 2


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Dots are seeds, lines medians; the recommended candidate has another colour."""
    lines = -(-len(rows) // PANELS_A_ROW)
    figure = Figure(figsize=(10, 2.8 * max(1, lines)), layout="constrained")
    panels = figure.subplots(max(1, lines), PANELS_A_ROW, squeeze=False).ravel()
    for axes in panels[len(rows) :]:
        axes.set_axis_off()
    for axes, row in zip(panels, rows, strict=False):
        _panel(axes, row)
    figure.savefig(path)


def _panel(axes: Axes, row: dict[str, Any]) -> None:
    names = list(row["times_s"])
    for place, name in enumerate(reversed(names)):
        times = [time_s for time_s in row["times_s"][name] if time_s is not None]
        colour = CHOSEN if name == row["choice"] else OTHER
        axes.plot(times, [place] * len(times), "o", color=colour, alpha=0.6, markersize=5)
        if len(times) == len(row["times_s"][name]):
            axes.plot([median(times)] * 2, [place - 0.3, place + 0.3], color=colour, linewidth=2)
        else:
            axes.text(0.02, place, "not reached", transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks(range(len(names)), list(reversed(names)), fontsize="small")
    axes.set_xlim(left=0)
    axes.set(title=row["kind"], xlabel="seconds to the target, measured")
