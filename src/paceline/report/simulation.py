"""A simulation as one HTML file that needs nothing but itself: figures, lanes, and curves of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from paceline.report.svg import LINE_COLOURS, PHASE_COLOURS, Chart, chart
from paceline.simulate.lanes import MAX_LANES, end_of_steps
from paceline.simulate.remarks import remarks
from paceline.simulate.table import COLUMNS, Result, body, head, label_of
from paceline.simulate.windows import Windows

DROPPED_COLOUR = "#9aa6b5"
Lanes = Sequence[tuple[Result, Windows]]


def render_simulation(title: str, results: Sequence[Result], shown: Lanes, *, steps: int) -> str:
    """The page about ``results``; ``shown``: whose first ``steps`` windows are drawn as lanes."""
    environment = Environment(
        loader=PackageLoader("paceline.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["svg"] = Markup
    return environment.get_template("simulation.html.j2").render(
        title=title,
        subtitle="Simulated with paceline's own policy; no process was run.",
        head=head(results),
        rows=body(results),
        meanings=COLUMNS,
        remarks=remarks(results),
        charts=[*_sweeps(results), *_lanes(results, shown, steps)],
    )


def _sweeps(results: Sequence[Result]) -> Iterator[Chart]:
    """Throughput against the number of workers, where that differs; a line for each other choice."""
    sizes = {one.scene.workers for one in results}
    if len(sizes) < 2:
        return
    lines: dict[str, list[Result]] = {}
    for one in results:
        pattern, shards = one.scene.pattern, one.scene.shards
        name = " ".join(filter(None, [one.prediction.strategy, pattern]))
        lines.setdefault(f"{name}, {shards} shards" if shards > 1 else name, []).append(one)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for number, (name, own) in enumerate(lines.items()):
            x = [one.scene.workers for one in own]
            y = [one.prediction.windows_per_s for one in own]
            axes.plot(x, y, marker="o", label=name, color=LINE_COLOURS[number % len(LINE_COLOURS)])
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sorted(sizes), [str(size) for size in sorted(sizes)])
        axes.set_xlabel("workers")
        axes.set_ylabel("windows per second, all workers")
        axes.legend()

    yield chart("Throughput", "Applied windows per second against workers.", (9, 4.5), draw)


def _lanes(results: Sequence[Result], shown: Lanes, steps: int) -> Iterator[Chart]:
    if not shown:
        return
    until_s = max(end_of_steps(windows, steps) for _, windows in shown)
    for result, windows in shown:
        yield _lane_chart(label_of(result, results), windows, until_s)


def _lane_chart(label: str, windows: Windows, until_s: float) -> Chart:
    ranks = range(min(windows.workers, MAX_LANES))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for rank in ranks:
            for applied, colour in ((True, PHASE_COLOURS["compute"]), (False, DROPPED_COLOUR)):
                own = (windows.rank == rank) & (windows.applied == applied)
                own &= windows.start_s < until_s
                spans = np.column_stack(
                    [windows.start_s[own], windows.end_s[own] - windows.start_s[own]]
                )
                axes.broken_barh(
                    [(float(a), float(b)) for a, b in spans],
                    (rank - 0.36, 0.72),
                    facecolors=colour,
                    edgecolors="white",
                    linewidth=0.6,
                )
        axes.set_xlim(0, until_s)
        axes.set_ylim(len(ranks) - 0.4, -0.6)
        axes.set_yticks(list(ranks), [f"worker {rank}" for rank in ranks])
        axes.set_xlabel("seconds")
        axes.grid(axis="y", visible=False)
        handles = [
            Patch(color=PHASE_COLOURS["compute"], label="computing"),
            Patch(color=DROPPED_COLOUR, label="computing in vain (dropped)"),
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=2)

    caption = f"The first {until_s:.3g} s. Blank: waiting or exchanging."
    if windows.workers > MAX_LANES:
        caption += f" The first {MAX_LANES} of {windows.workers} workers."
    return chart(label, caption, (10, 1.3 + 0.42 * len(ranks)), draw)
