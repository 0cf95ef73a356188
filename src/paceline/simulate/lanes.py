"""The first steps as lanes of text, a row a worker: the textbook picture with the user's own numbers."""

from __future__ import annotations

import numpy as np

from paceline.simulate.windows import Windows

COMPUTING, DROPPED, WAITING = "█▓", "░", "·"
MAX_LANES = 16


def lanes(windows: Windows, *, until_s: float, columns: int = 80) -> list[str]:
    """One line a worker (the first :data:`MAX_LANES`), from time 0 to ``until_s``.

    Windows alternate between two shades; a window whose push was dropped has a third.
    """
    scale = columns / until_s
    shown = []
    for rank in range(min(windows.workers, MAX_LANES)):
        row = [WAITING] * columns
        own = np.flatnonzero(windows.rank == rank)
        for number, place in enumerate(own[np.argsort(windows.start_s[own])]):
            start = int(windows.start_s[place] * scale)
            stop = int(windows.end_s[place] * scale)
            mark = COMPUTING[number % 2] if windows.applied[place] else DROPPED
            for column in range(start, min(max(stop, start + 1), columns)):
                row[column] = mark
        shown.append("".join(row))
    return shown


def end_of_steps(windows: Windows, steps: int) -> float:
    """When every worker had ended its first ``steps`` windows (or all that it had)."""
    last = 0.0
    for rank in range(windows.workers):
        ends = np.sort(windows.end_s[windows.rank == rank])
        if len(ends):
            last = max(last, float(ends[min(steps, len(ends)) - 1]))
    return last
