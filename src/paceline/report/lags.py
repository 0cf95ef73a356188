"""Version-lag histogram of each worker: how old its gradients were when they were applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.report.svg import LINE_COLOURS, Chart, chart
from paceline.runs import Run
from paceline.trace import Step

MAX_WORKERS = 16
PER_LINE = 3


def lags_chart(runs: Mapping[str, Sequence[Run]]) -> Chart | None:
    """One panel a label (its first run), one histogram a worker; None if nobody had company."""
    shown = {label: group[0] for label, group in runs.items() if len(group[0].ranks) > 1}
    if not shown:
        return None
    lines = -(-len(shown) // PER_LINE)
    most = max(min(MAX_WORKERS, len(run.ranks)) for run in shown.values())
    limit = max(lag for run in shown.values() for rank in run.ranks for lag in _lags(rank.steps))

    def draw(figure: Figure) -> None:
        grid = figure.subplots(lines, min(PER_LINE, len(shown)), squeeze=False).flatten()
        for axes, (label, run) in zip(grid, shown.items(), strict=False):
            _panel(axes, label, run, limit)
        for unused in grid[len(shown) :]:
            unused.set_visible(False)

    caption = (
        "Share of each worker's applied pushes by version lag: updates by others between its pull "
        "and its push. Beside each name: the mean."
    )
    return chart("Version lag", caption, (10, lines * (1.2 + 0.45 * most)), draw)


def _panel(axes: Axes, label: str, run: Run, limit: int) -> None:
    ranks = run.ranks[:MAX_WORKERS]
    for row, rank in enumerate(ranks):
        lags = _lags(rank.steps)
        counted = Counter(lags)
        heights = [0.85 * counted[lag] / max(counted.values()) for lag in sorted(counted)]
        axes.bar(
            sorted(counted), heights, bottom=len(ranks) - 1 - row, width=0.85, color=LINE_COLOURS[0]
        )
    means = [sum(_lags(rank.steps)) / len(_lags(rank.steps)) for rank in ranks]
    names = [
        f"worker {rank.rank} (mean {mean:.1f})" for rank, mean in zip(ranks, means, strict=True)
    ]
    axes.set_yticks([len(ranks) - 1 - row for row in range(len(ranks))], names)
    axes.set_xlim(-0.7, limit + 0.7)
    axes.set_ylim(0, len(ranks))
    axes.set_title(label)
    axes.set_xlabel("version lag (updates)")


def _lags(steps: Sequence[Step]) -> list[int]:
    """Lags of the applied pushes; a worker without any counts as one of lag 0."""
    return [step.lag for step in steps if step.applied] or [0]
