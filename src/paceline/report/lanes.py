"""A lane for each worker: computing, waiting, exchanging, fetching data. Who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from paceline.compare.figures import interval
from paceline.compare.phases import WindowTimes, windows
from paceline.report.svg import PHASE_COLOURS, Chart, chart
from paceline.runs import Run

MAX_SLICE_S = 30.0
SHORTEST_S = 1e-3
WINDOWS_SHOWN = 30
MAX_LANES = 16
_WORDS = {
    "compute": "computing",
    "wait": "waiting for others",
    "exchange": "exchanging",
    "data": "fetching data",
    "coding": "encoding",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One worker did one thing from ``start_s`` for ``length_s``."""

    phase: str
    start_s: float
    length_s: float


def slice_length_s(runs: Sequence[Run]) -> float:
    """How much time to show: about ``WINDOWS_SHOWN`` windows of the slowest run, 30 s at most."""
    cycles = [_cycle_s(run) for run in runs]
    return min(MAX_SLICE_S, WINDOWS_SHOWN * max(cycles, default=1.0))


def lanes_chart(label: str, run: Run, length_s: float) -> Chart:
    """The lanes of ``run`` over ``length_s`` seconds, from a tenth of its time on."""
    first_s, last_s = interval(run)
    total_s = max(last_s - first_s, SHORTEST_S)
    length_s = max(min(length_s, total_s), SHORTEST_S)
    offset_s = min(total_s / 10, total_s - length_s)
    lanes = dict(list(spans(run).items())[:MAX_LANES])

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for row, own in enumerate(lanes.values()):
            for phase, colour in PHASE_COLOURS.items():
                shown = _clipped(own, phase, first_s, offset_s, length_s)
                axes.broken_barh(shown, (row - 0.36, 0.72), facecolors=colour, linewidth=0)
        axes.set_xlim(offset_s, offset_s + length_s)
        axes.set_ylim(len(lanes) - 0.4, -0.6)
        axes.set_yticks(range(len(lanes)), [f"worker {rank}" for rank in lanes])
        axes.set_xlabel("seconds since the first window")
        axes.grid(axis="y", visible=False)
        words = _told(lanes.values())
        handles = [Patch(color=PHASE_COLOURS[phase], label=word) for phase, word in words.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=len(words))

    return chart(
        f"Lanes of {label}", _caption(run, offset_s, length_s), (10, 1.3 + 0.42 * len(lanes)), draw
    )


def window_spans(window: WindowTimes) -> Iterator[Span]:
    """The window's phases laid end to end in the order in which they happen."""
    at_s = window.start_s - window.gate_s - window.pull_s
    for phase, length_s in (
        ("wait", window.gate_s),
        ("exchange", window.pull_s),
        ("data", window.data_s),
        ("compute", window.compute_s),
        ("coding", window.coding_s),
        ("wait", window.wait_s),
        ("exchange", window.exchange_s),
    ):
        yield Span(phase=phase, start_s=at_s, length_s=length_s)
        at_s += length_s


def spans(
    run: Run, of: Callable[[WindowTimes], Iterator[Span]] = window_spans
) -> dict[int, list[Span]]:
    """What each worker did when, by rank; ``of``: what a window is divided into. Micro-batches of a window
    are drawn together."""
    timed = windows(run)
    return {
        rank.rank: [
            *(span for window in timed[rank.rank] for span in of(window)),
            *(
                _tail(timed[rank.rank], one.started_s, one.time_s)
                for one in rank.passes
            ),
        ]
        for rank in run.ranks
    }  # fmt: skip


def _told(lanes: Iterable[Sequence[Span]]) -> dict[str, str]:
    """What colours mean: encoding only where somebody does."""
    encodes = any(span.phase == "coding" and span.length_s > 0 for own in lanes for span in own)
    return {phase: word for phase, word in _WORDS.items() if phase != "coding" or encodes}


def _tail(own: Sequence[WindowTimes], started_s: float, ended_s: float) -> Span:
    """The wait for others between a worker's last window of a pass and the pass's end."""
    last_s = max((w.end_s for w in own if started_s <= w.end_s <= ended_s), default=started_s)
    return Span(phase="wait", start_s=last_s, length_s=ended_s - last_s)


def _clipped(
    own: Sequence[Span], phase: str, first_s: float, offset_s: float, length_s: float
) -> list[tuple[float, float]]:
    """(start, width) of the phase's spans inside the slice, in seconds since the first window."""
    clipped = []
    for span in own:
        start_s = max(span.start_s - first_s, offset_s)
        stop_s = min(span.start_s + span.length_s - first_s, offset_s + length_s)
        if span.phase == phase and stop_s > start_s:
            clipped.append((round(start_s, 5), round(stop_s - start_s, 5)))
    return clipped


def _cycle_s(run: Run) -> float:
    """Median time from one start to the next."""
    starts = [np.diff([step.time_s for step in rank.steps]) for rank in run.ranks]
    gaps = np.concatenate(starts) if starts else np.array([])
    return float(np.median(gaps)) if len(gaps) else 1.0


def _caption(run: Run, offset_s: float, length_s: float) -> str:
    first_s, last_s = interval(run)
    text = f"Shown: {length_s:.2f} s of {last_s - first_s:.1f} s, from {offset_s:.2f} s on."
    if len(run.ranks) > MAX_LANES:
        text += f" The first {MAX_LANES} of {len(run.ranks)} workers."
    return text + " Blank: the script's own code, such as evaluation."


def lanes_of(runs: Mapping[str, Sequence[Run]]) -> list[Chart]:
    """Lanes of the first run of each label, all on the same scale of time."""
    firsts = {label: group[0] for label, group in runs.items()}
    length_s = slice_length_s(list(firsts.values()))
    return [lanes_chart(label, run, length_s) for label, run in firsts.items()]
