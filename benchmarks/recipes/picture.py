"""Score against time, each strategy under each recipe: what the documentation shows."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure

from recipes.cells import Setting
from recipes.store import Store
from recipes.table import UNIT, cells_of

COLOURS = {"sync": "#4c4c4c", "ssp:3": "#1f77b4", "async": "#d62728", "backup:1": "#2ca02c"}


def draw(store: Store, groups: list[list[Setting]], path: Path) -> None:
    """One panel for each task on the calm cluster; lines are means over the seeds that are stored."""
    tasks = [task for task in UNIT if any(_shown(store, groups, task))]
    figure = Figure(figsize=(5.2 * max(1, len(tasks)), 3.6), layout="constrained")
    for axes, task in zip(
        figure.subplots(1, max(1, len(tasks)), squeeze=False)[0], tasks, strict=False
    ):
        for setting in _shown(store, groups, task):
            curves = [store.curve(cell) for cell in cells_of(store, setting)]
            points = list(zip(*filter(None, curves), strict=True))
            axes.plot(
                [mean(point.time_s for point in at) for at in points],
                [mean(point.score for point in at) for at in points],
                "--" if setting.recipe == "plain" else "-",
                color=COLOURS[setting.strategy], marker=".",
                label=f"{setting.strategy}, {setting.recipe}",
            )  # fmt: skip
        axes.set(xlabel="steps of an undisturbed worker", ylabel=UNIT[task], title=task)
        axes.legend(fontsize="small")
    figure.savefig(path)


def _shown(store: Store, groups: list[list[Setting]], task: str) -> list[Setting]:
    everything = [one for group in groups for one in group]
    calm = [one for one in everything if one.cluster == "hiccups-8" and one.name == one.strategy]
    return [one for one in calm if one.task == task and cells_of(store, one)]
