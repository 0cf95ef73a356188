"""A measurement as people read it in a terminal, and as JSON for other programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from paceline.compare.units import duration, size
from paceline.measure.headline import headline, next_steps
from paceline.measure.planes import USED, which_is_faster
from paceline.measure.result import Link, Measurement
from paceline.measure.sentences import Judged
from paceline.measure.steps import StepModel
from paceline.measure.sweep import winners
from paceline.terminal import as_text

SCHEMA = 1
MOST_SHOWN = 12
"""Ranks whose matrix fits a terminal."""


def render(measured: Measurement, judged: Judged, steps: StepModel | None, written: str) -> str:
    """Verdict first, then the matrices, then which all-reduce wins. ``written``: the cluster's file."""
    parts = [headline(judged, steps)]
    parts.append("\n".join(["Next", *(f"  {line}" for line in next_steps(judged, steps, written))]))
    if judged.slow and judged.doubts:
        parts.append("\n".join(["Not judged", *(f"  because {one}" for one in judged.doubts)]))
    parts += _drawn(_tables(measured))
    parts.append(_planes(measured))
    if steps is not None:
        parts.append(_of_steps(steps))
    parts.append("\n".join(["Note", *(f"  {line}" for line in _notes(measured, judged))]))
    return "\n\n".join(part for part in parts if part)


def as_json(measured: Measurement, judged: Judged, steps: StepModel | None, written: str) -> str:
    """All figures in SI units; ``schema`` rises when a field changes its meaning."""
    document: dict[str, Any] = {
        "schema": SCHEMA, "verdict": headline(judged, steps), **asdict(judged), "complete": measured.complete,
        "places": [asdict(one) for one in measured.places],
        "links": [asdict(one) for one in measured.links],
        "all_reduce": [asdict(one) for one in measured.timings],
        "steps": None if steps is None else asdict(steps), "written": written,
        "server_plane": [asdict(one) for one in measured.server],
        "faster_plane": which_is_faster((*measured.timings, *measured.server)),
    }  # fmt: skip
    return json.dumps(document, indent=2)


def _tables(measured: Measurement) -> Iterator[Table]:
    if 0 < measured.ranks <= MOST_SHOWN and measured.links:
        yield _matrix("bandwidth, row sends to column", measured, _rate)
        yield _matrix("latency one way, p50 / p99", measured, _latency)
    if measured.timings:
        yield _sweep(measured)
    if measured.server:
        yield _server(measured)


def _drawn(tables: Iterator[Table]) -> list[str]:
    drawn = []
    for table in tables:
        title, table.title = str(table.title), None  # rich would wrap it to the table's width
        drawn.append(f"{title}\n{as_text(table)}")
    return drawn


def _rate(link: Link) -> str:
    return f"{size(link.bytes_per_s)}/s"


def _latency(link: Link) -> str:
    return f"{duration(link.p50_s)} / {duration(link.p99_s)}"


def _matrix(title: str, measured: Measurement, shown: Any) -> Table:
    table = _table(title, [str(rank) for rank in range(measured.ranks)])
    cells = {(link.rank, link.to): shown(link) for link in measured.links}
    for rank in range(measured.ranks):
        row = [cells.get((rank, to), "") for to in range(measured.ranks)]
        table.add_row(f"rank {rank}", *row)
    return table


def _sweep(measured: Measurement) -> Table:
    best = winners(list(measured.timings))
    names = list(dict.fromkeys(one.algorithm for one in measured.timings))
    cells = {(one.size_bytes, one.algorithm): duration(one.seconds) for one in measured.timings}
    table = _table("all-reduce, median of the slowest rank", [*names, "fastest"])
    for size_bytes, winner in best.items():
        row = [cells.get((size_bytes, name), "") for name in names]
        table.add_row(size(size_bytes), *row, winner)
    return table


def _server(measured: Measurement) -> Table:
    cells = {(one.size_bytes, one.algorithm): duration(one.seconds) for one in measured.timings}
    table = _table("server plane, push to pull", ["server", USED])
    for one in measured.server:
        table.add_row(
            size(one.size_bytes), duration(one.seconds), cells.get((one.size_bytes, USED), "")
        )
    return table


def _planes(measured: Measurement) -> str:
    """From which size on which plane is faster on this host."""
    sentence = which_is_faster((*measured.timings, *measured.server))
    return f"Planes\n  {sentence}" if sentence else ""


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title=title)
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _of_steps(steps: StepModel) -> str:
    slow = [
        f"rank {rank} takes {factor:.2f} times as long" for rank, factor in steps.factors.items()
    ]
    hiccups = f"{100 * steps.hiccup_share:.1f} % take {steps.hiccup_factor:.1f} times as long"
    told = [
        f"{duration(steps.step_s * (1 + steps.jitter))} a micro-batch (mean of {steps.recorded})",
        *slow,
    ]
    whose = f"{steps.origin}\n  " if steps.origin else ""
    return f"Steps\n  {whose}" + "; ".join([*told, *([hiccups] if steps.hiccup_share else [])])


def _notes(measured: Measurement, judged: Judged) -> Iterator[str]:
    used = sorted({(place.host, place.interface) for place in measured.places if place.interface})
    if used:
        yield "most bytes went over " + ", ".join(f"{name} ({host})" for host, name in used)
    yield from judged.remarks
    if measured.server:
        yield (
            "server plane: from a rank's push to its answer, without waiting for others, the server's SGD "
            "step included, which after an all-reduce every rank has still to do"
        )
    yield (
        "bandwidth: slope over the lower quartiles of transfers of three sizes (the largest 0.1 s); "
        "latency: half a round trip of 8 bytes, "
        "judged by its lower quartile"
    )
    if not measured.complete:
        yield "interrupted: what had been measured until then"
