"""A run as Chrome trace events, for https://ui.perfetto.dev: a process for each worker, with a track for
each thing that it does, and one for the server.

Format: "Trace Event Format" (Google): ``X`` events with ``ts`` and ``dur`` in microseconds; tracks are
named by ``M`` events. Time 0 is the run's first window. Knows what :mod:`.lanes` draws, no rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import Any, TextIO

from paceline.compare.figures import interval
from paceline.compare.phases import WindowTimes, step_end_s
from paceline.events import Push, Update
from paceline.report.lanes import Span, spans, window_spans
from paceline.runs import Run

TRACKS = ("compute", "wait", "exchange", "input")
TRACK_OF = {
    "compute": "compute", "forward": "compute", "backward": "compute", "wait": "wait",
    "exchange": "exchange", "data": "input", "coding": "exchange",
}  # fmt: skip
_NAMES = {"compute": "compute", "forward": "forward", "backward": "backward", "coding": "encode"}
SERVER_PID = 100_000_000
"""Of no worker: theirs are their ranks and one (0 is the idle process to Perfetto)."""
MICROSECONDS = 1e6
Event = dict[str, Any]


def write_perfetto(run: Run, file: TextIO) -> int:
    """Write ``run`` to ``file``: one event a line, so that long runs need no memory for it. How many."""
    file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
    count = 0
    for count, event in enumerate(events(run), start=1):
        file.write((",\n" if count > 1 else "") + json.dumps(event))
    file.write("\n]}\n")
    return count


def events(run: Run) -> Iterator[Event]:
    """The run's trace events: names first, then what each worker did, then the server."""
    began_s, _ = interval(run)
    timed = spans(run, _window_spans)
    for rank in timed:
        yield _named("process_name", f"worker {rank}", pid=_pid(rank))
        for track in TRACKS:
            yield _named("thread_name", track, pid=_pid(rank), tid=_tid(rank, track))
    for rank, own in timed.items():
        for span in own:
            if span.length_s > 0:
                track = TRACK_OF[span.phase]
                name = _NAMES.get(span.phase, track)
                yield _event(span, name, began_s, pid=_pid(rank), tid=_tid(rank, track))
    updates = _updates(run)
    if updates:
        yield _named("process_name", "server", pid=SERVER_PID)
        yield _named("thread_name", "updates", pid=SERVER_PID, tid=SERVER_PID)
    for span in updates:
        yield _event(span, span.phase, began_s, pid=SERVER_PID, tid=SERVER_PID)


def _window_spans(window: WindowTimes) -> Iterator[Span]:
    """As the lanes have them, but forward and backward apart where both are on record."""
    forward_s, backward_s = window.forward_s, window.compute_s - window.forward_s
    for span in window_spans(window):
        if span.phase != "compute" or not (forward_s > 0 and backward_s > 0):
            yield span
            continue
        yield Span(phase="forward", start_s=span.start_s, length_s=forward_s)
        yield Span(phase="backward", start_s=span.start_s + forward_s, length_s=backward_s)


def _updates(run: Run) -> list[Span]:
    """Each update from the push that completed it until the first of its workers had the answer.

    One at a time: it ends at the latest when the next one begins.
    """
    ends_s = {(r.rank, step.clock): step_end_s(step) for r in run.ranks for step in r.steps}
    begun: list[tuple[float, float, str]] = []
    pushed_s = 0.0
    for one in run.decisions:
        if isinstance(one, Push):
            pushed_s = one.time_s
        elif isinstance(one, Update):
            answers = (ends_s.get(key, inf) for key in zip(one.ranks, one.clocks, strict=True))
            begun.append((pushed_s, min(answers, default=inf), f"version {one.version}"))
    closed = [*begun, (inf, inf, "")]
    return [
        Span(phase=name, start_s=start_s, length_s=max(0.0, min(end_s, next_s) - start_s))
        for (start_s, end_s, name), (next_s, _, _) in pairwise(closed)
        if min(end_s, next_s) < inf
    ]


def _pid(rank: int) -> int:
    return rank + 1


def _tid(rank: int, track: str) -> int:
    """A number that no other track of the file has."""
    return 10 * _pid(rank) + TRACKS.index(track)


def _event(span: Span, name: str, began_s: float, *, pid: int, tid: int) -> Event:
    return {
        "name": name, "ph": "X", "pid": pid, "tid": tid,
        "ts": round((span.start_s - began_s) * MICROSECONDS, 3),
        "dur": round(span.length_s * MICROSECONDS, 3),
    }  # fmt: skip


def _named(kind: str, name: str, *, pid: int, tid: int = 0) -> Event:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
