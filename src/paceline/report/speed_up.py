"""Speed-up against the number of workers, where a comparison has several sizes."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing

from paceline.compare.figures import Figures
from paceline.compare.rows import Row, label_of, mean_and_spread
from paceline.report.svg import LINE_COLOURS, Chart, chart

Points = list[tuple[int, float]]
"""Workers, speed-up."""


def speed_up_charts(rows: Sequence[Row]) -> list[Chart]:
    """One chart, or none where there is one size or no lone worker."""
    curves = _curves(rows)
    sizes = {workers for points in curves.values() for workers, _ in points}
    if len(sizes) < 2:
        return []

    def draw(figure: Drawing) -> None:
        axes = figure.subplots()
        most = max(sizes)
        axes.plot([1, most], [1, most], color="gray", linestyle=":", label="each worker adds one")
        for colour, (label, points) in zip(LINE_COLOURS * 4, curves.items(), strict=False):
            whole = [(1, 1.0), *sorted(points)]
            axes.plot(*zip(*whole, strict=True), color=colour, marker="o", label=label)
        axes.set_xticks([1, *sorted(sizes)])
        axes.set_xlabel("workers")
        axes.set_ylabel("speed-up")
        axes.legend()

    caption = (
        "Samples per second against those of one worker, which is the time that one worker takes for "
        "as many samples over the time that these take."
    )
    return [chart("Speed-up", caption, (6, 3.6), draw)]


def _curves(rows: Sequence[Row]) -> dict[str, Points]:
    curves: dict[str, Points] = {}
    for row in rows:
        found = mean_and_spread(row.runs, _speed_up)
        if found is not None and row.runs[0].workers > 1:
            curves.setdefault(label_of(row.runs[0]), []).append((row.runs[0].workers, found[0]))
    return curves


def _speed_up(figures: Figures) -> float | None:
    return figures.speed_up
