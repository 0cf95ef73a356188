"""Draws docs/images/replay.svg: ``replay_picture.py RUN REPLAY``.

The first windows of a recorded run and of its replay, each bar with the version that its push made: the
times differ, the order does not.
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from paceline import events
from paceline.runs import Run, read_run

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "replay.svg"
FIRST, LAST = 20, 50
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")


def versions(run: Run) -> dict[tuple[int, int], int]:
    """(rank, clock) -> the version that this window's push made."""
    updates = [one for one in run.decisions if isinstance(one, events.Update)]
    return {
        (rank, clock): update.version
        for update in updates
        for rank, clock in zip(update.ranks, update.clocks, strict=True)
    }


def draw(figure: Figure, run: Run, label: str, place: int) -> None:
    axes = figure.add_subplot(2, 1, place)
    made = versions(run)
    shown = [
        (rank.rank, step, made[rank.rank, step.clock])
        for rank in run.ranks
        for step in rank.steps
        if FIRST <= made.get((rank.rank, step.clock), 0) <= LAST
    ]
    began_s = min(step.time_s for _, step, _ in shown)
    for rank, step, version in shown:
        start_s = step.time_s - began_s
        length_s = step.data_s + step.forward_s + step.backward_s + step.wait_s + step.exchange_s
        axes.barh(rank, length_s, 0.7, start_s, color=COLOURS[version % 4], alpha=0.55)
        axes.text(start_s + length_s, rank, str(version), ha="right", va="center", fontsize=8)
    axes.set_yticks(range(len(run.ranks)), [f"worker {rank.rank}" for rank in run.ranks])
    axes.invert_yaxis()
    axes.set_title(label, loc="left", fontsize=10)
    axes.set_xlabel("seconds")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main() -> None:
    with rc_context({"svg.hashsalt": "paceline", "svg.fonttype": "none"}):
        figure = Figure(figsize=(10, 5), layout="constrained")
        for place, (label, path) in enumerate(
            zip(("recorded", "replayed"), sys.argv[1:], strict=True)
        ):
            draw(figure, read_run(path), label, place + 1)
        figure.savefig(OUT, metadata={"Date": None})


if __name__ == "__main__":
    main()
