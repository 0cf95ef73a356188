"""Figures as SVG inside a page: offline, named for screen readers, and in the page's own colours.

Text stays text. Two stand-in colours become the page's CSS variables, so that a figure follows the
reader's light or dark mode. This module knows matplotlib and nothing of runs.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

INK, GRID = "#102030", "#102031"
PHASE_COLOURS = {
    "compute": "#0072B2",
    "wait": "#E69F00",
    "exchange": "#CC79A7",
    "data": "#009E73",
    "coding": "#56B4E9",
}
LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31")
"""Okabe and Ito's palette, told apart by people with any kind of colour vision."""

_STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "paceline", "text.parse_math": False,
    "path.simplify": True, "font.size": 10,
    "text.color": INK, "axes.edgecolor": GRID, "axes.labelcolor": INK, "xtick.color": INK,
    "ytick.color": INK, "grid.color": GRID, "axes.grid": True, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
    "axes.titlesize": 10, "axes.titleweight": "bold", "figure.facecolor": "none",
    "axes.facecolor": "none", "legend.frameon": False, "figure.constrained_layout.use": True,
    "ytick.major.size": 0, "xtick.major.size": 3, "axes.formatter.useoffset": False,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A drawn figure. ``caption``: what it shows, in words, for everyone."""

    title: str
    caption: str
    svg: str


def chart(
    title: str, caption: str, size: tuple[float, float], draw: Callable[[Figure], None]
) -> Chart:
    """What ``draw`` puts on a figure of ``size`` (width, height in inches), as a chart."""
    with rc_context(_STYLE):
        figure = Figure(figsize=size)
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Chart(title=title, caption=caption, svg=_embedded(buffer.getvalue(), title, caption))


def _embedded(text: str, title: str, caption: str) -> str:
    prefix = "f" + re.sub(r"\W+", "-", title.lower())
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = text.replace(INK, "var(--ink)").replace(GRID, "var(--grid)")
    head = f'<svg role="img" aria-labelledby="{prefix}-t {prefix}-d"'
    names = f'<title id="{prefix}-t">{escape(title)}</title><desc id="{prefix}-d">{escape(caption)}</desc>'
    text = text.replace("<svg", head, 1)
    return re.sub(r"(<svg[^>]*>)", lambda found: found.group(1) + names, text, count=1)
