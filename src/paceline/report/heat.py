"""A measurement's links as a heat map: one bad cell, row or column is seen at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from paceline.compare.units import duration, size
from paceline.measure.result import Measurement
from paceline.measure.sentences import Judged
from paceline.measure.wire import Array
from paceline.report.svg import Chart, chart

FIGURES: dict[str, tuple[str, str, Callable[[float], str]]] = {
    "bytes_per_s": ("Bandwidth", "cividis", lambda value: f"{size(value)}/s"),
    "alpha_s": ("Latency, one way", "cividis_r", duration),
}
MOST_LABELLED = 12
LEAST_FACTOR = 3.0
"""That the colours span: links that are nearly alike are to look alike."""


def heat_maps(measured: Measurement) -> list[Chart]:
    """Bandwidth and latency; row sends to column. Dark is slow in both."""
    return [_heat_map(measured, name) for name in FIGURES]


def heat_page(measured: Measurement, judged: Judged) -> str:
    """Both as one HTML file that needs nothing but itself."""
    environment = Environment(
        loader=PackageLoader("paceline.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["svg"] = Markup
    page = environment.get_template("links.html.j2")
    return page.render(verdict=judged.verdict, charts=heat_maps(measured))


def heat_svg(measured: Measurement) -> str:
    """Bandwidth alone, as an SVG file with colours of its own."""
    svg = _heat_map(measured, "bytes_per_s").svg
    style = "<style>:root { --ink: #1c2430; --grid: #d9dee5; } svg { background: white; }</style>"
    svg = svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg" '
                      'xmlns:xlink="http://www.w3.org/1999/xlink"', 1)  # fmt: skip
    return svg.replace("</desc>", f"</desc>{style}", 1)


def _heat_map(measured: Measurement, name: str) -> Chart:
    title, colours, shown = FIGURES[name]
    values = measured.matrix(name)
    values[np.isinf(values)] = np.nan
    ranks = measured.ranks

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        low, high = _scale(values, dark_is_low=name == "bytes_per_s")
        axes.imshow(np.log10(values), cmap=colours, vmin=low, vmax=high)
        middle = (low + high) / 2
        axes.set_xlabel("to rank")
        axes.set_ylabel("from rank")
        axes.grid(visible=False)
        if ranks > MOST_LABELLED:
            return
        axes.set_xticks(range(ranks))
        axes.set_yticks(range(ranks))
        for row, column in np.argwhere(~np.isnan(values)):
            value = values[row, column]
            light = (np.log10(value) > middle) == (name == "bytes_per_s")
            axes.text(column, row, shown(value), ha="center", va="center", fontsize=8,
                      color="black" if light else "white")  # fmt: skip

    side = min(2.2 + 0.85 * ranks, 11)
    return chart(title, "Row sends to column. Dark is slow.", (side + 0.8, side), draw)


def _scale(values: Array, *, dark_is_low: bool) -> tuple[float, float]:
    """Logarithms of what is darkest and lightest; healthy links are light."""
    logs = np.log10(values[~np.isnan(values)])
    if not logs.size:
        return 0.0, 1.0
    low, high = float(logs.min()), float(logs.max())
    spare = max(float(np.log10(LEAST_FACTOR)) - (high - low), 0.0)
    return (low - spare, high) if dark_is_low else (low, high + spare)
