"""How far replicas were apart as each pass ended, where a strategy lets them differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from paceline.report.svg import LINE_COLOURS, Chart, chart
from paceline.runs import RankTrace, Run

COLUMNS = ("distance from the mean", "size of the mean", "apart")
PER_LINE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftSection:
    """``rows``: (run, worker) and its cells, as the last pass ended."""

    chart: Chart
    rows: Sequence[Sequence[str]]


def drift_section(runs: Mapping[str, Sequence[Run]]) -> DriftSection | None:
    """Of each label's first run, if it has replicas; None if none has."""
    shown = {label: group[0] for label, group in runs.items() if _drifted(group[0])}
    if not shown:
        return None
    rows = [
        [f"{label}, worker {rank.rank}" if len(shown) > 1 else f"worker {rank.rank}", *_cells(rank)]
        for label, run in shown.items()
        for rank in _drifted(run)
    ]
    return DriftSection(chart=_chart(shown), rows=rows)


def apart(rank: RankTrace) -> list[tuple[int, float]]:
    """(pass, distance from the mean over the mean's size) of each pass in which it is known."""
    known = [one for one in rank.drifts if one.distance is not None and one.size > 0]
    return [(one.pass_id + 1, (one.distance or 0.0) / one.size) for one in known]


def _drifted(run: Run) -> list[RankTrace]:
    return [rank for rank in run.ranks if rank.drifts]


def _cells(rank: RankTrace) -> list[str]:
    last = rank.drifts[-1]
    if last.distance is None:
        return ["not finite", f"{last.size:.4g}", "–"]
    return [
        f"{last.distance:.4g}",
        f"{last.size:.4g}",
        f"{last.distance / max(last.size, 1e-30):.2%}",
    ]


def _chart(shown: Mapping[str, Run]) -> Chart:
    lines = -(-len(shown) // PER_LINE)

    def draw(figure: Figure) -> None:
        grid = figure.subplots(
            lines, min(PER_LINE, len(shown)), squeeze=False, sharey=True
        ).flatten()
        for axes, (label, run) in zip(grid, shown.items(), strict=False):
            _panel(axes, label, run)
        for unused in grid[len(shown) :]:
            unused.set_visible(False)

    caption = (
        "Distance of each worker's parameters from the mean of all, over the size of that mean (2-norms "
        "over all trained parameters), as each pass ended and before the replicas became one. "
        "Under local:inf they never do."
    )
    return chart("Replicas apart", caption, (10, 0.6 + 2.6 * lines), draw)


def _panel(axes: Axes, label: str, run: Run) -> None:
    for number, rank in enumerate(_drifted(run)):
        points = apart(rank)
        axes.plot(
            [passed for passed, _ in points], [part for _, part in points], marker="o", markersize=3.5,
            color=LINE_COLOURS[number % len(LINE_COLOURS)], label=f"worker {rank.rank}",
        )  # fmt: skip
    axes.set_title(label)
    axes.set_xlabel("pass")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(bottom=0.0)
    axes.legend(fontsize=8)
