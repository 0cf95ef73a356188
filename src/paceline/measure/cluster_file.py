"""A measurement as the cluster.toml that ``paceline simulate`` and ``--emulate`` read.

That file knows one link a worker, not one a pair: a port is in it, a single slow link only as a comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import numpy as np

from paceline.measure.result import Measurement
from paceline.measure.sentences import Judged
from paceline.measure.steps import StepModel
from paceline.measure.sweep import Timing
from paceline.measure.wire import Array

SIMULATED = ("ring", "tree", "halving-doubling")
"""What :mod:`paceline.cost` has a formula for."""


def cluster_toml(
    measured: Measurement, judged: Judged, steps: StepModel | None, size_bytes: float
) -> str:
    """The file's text. ``steps``: None if none was measured: it says 50 ms then, and that this is made up."""
    blocks = [
        ["# Measured by 'paceline measure'."],
        _workers(measured.ranks, steps),
        *_uneven(steps),
        _network(measured, judged, size_bytes),
        *_own_links(measured, judged),
        [f"# {one.sentence} This file has a link a worker, not one a pair." for one in judged.slow
         if one.kind == "link"],
    ]  # fmt: skip
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _workers(count: int, steps: StepModel | None) -> list[str]:
    if steps is None:
        return [
            "[workers]",
            f"count = {count}",
            "step_s = 0.05        # not measured: give a script or --from RUN",
        ]
    return [
        "[workers]", f"count = {count}",
        f"step_s = {steps.step_s:.6g}        # a micro-batch, of {steps.recorded} recorded",
        f"jitter = {steps.jitter:.4g}",
    ]  # fmt: skip


def _uneven(steps: StepModel | None) -> Iterator[list[str]]:
    if steps is None:
        return
    if steps.hiccup_share:
        yield [
            "[hiccups]",
            f"probability = {steps.hiccup_share:.4g}",
            f"factor = {steps.hiccup_factor:.4g}",
        ]
    for rank, factor in steps.factors.items():
        yield ["[[stragglers]]", f"rank = {rank}", f"factor = {factor:.4g}"]


def _network(measured: Measurement, judged: Judged, size_bytes: float) -> list[str]:
    across = measured.across()
    links = ~np.eye(measured.ranks, dtype=bool)
    usual = links & across if across.any() else links
    for one in judged.slow:
        usual = usual & ~_of(one.ranks, measured.ranks)
    lines = ["[network]", f"size_bytes = {size_bytes:.6g}", *_link(measured, usual)]
    lines.append(f'algorithm = "{_algorithm(measured.timings, size_bytes)}"')
    per_node = _per_node(measured)
    if per_node > 1 and across.any():
        inside = links & ~across
        lines += [
            f"per_node = {per_node}",
            f"inside_delay_s = {_middle(measured.matrix('alpha_s')[inside]):.4g}",
            f"inside_bytes_per_s = {_middle(measured.matrix('bytes_per_s')[inside]):.6g}",
        ]
    return lines


def _own_links(measured: Measurement, judged: Judged) -> Iterator[list[str]]:
    named = sorted({rank for one in judged.slow if one.kind != "link" for rank in one.ranks})
    across = measured.across()
    for rank in named:
        touching = _of((rank,), measured.ranks)
        yield ["[[links]]", f"rank = {rank}",
               *_link(measured, touching & across if across.any() else touching)]  # fmt: skip


def _of(ranks: tuple[int, ...], world_size: int) -> Array:
    """The links from or to one of ``ranks``."""
    touched = np.isin(np.arange(world_size), ranks)
    both: Array = (touched[:, None] | touched[None, :]) & ~np.eye(world_size, dtype=bool)
    return both


def _link(measured: Measurement, which: Array) -> list[str]:
    """Of the links ``which``; of all, where none is left."""
    if not which.any():
        which = ~np.eye(measured.ranks, dtype=bool)
    base_s, jitter_s, rate = (
        _middle(measured.matrix(name)[which]) for name in ("base_s", "jitter_s", "bytes_per_s")
    )
    lines = [f"delay_s = {base_s:.4g}", f"jitter_s = {jitter_s:.4g}"]
    return [*lines, f"bytes_per_s = {rate:.6g}"] if isfinite(rate) else lines


def _middle(values: Array) -> float:
    return float(np.median(values))


def _algorithm(timings: tuple[Timing, ...], size_bytes: float) -> str:
    """The fastest of those that can be simulated, at the measured size nearest to the parameters'."""
    known = [one for one in timings if one.algorithm in SIMULATED]
    if not known:
        return "ring"
    nearest = min(
        {one.size_bytes for one in known}, key=lambda size: abs(np.log(size / size_bytes))
    )
    return min(
        (one for one in known if one.size_bytes == nearest), key=lambda one: one.seconds
    ).algorithm


def _per_node(measured: Measurement) -> int:
    """Ranks of a host, if all hosts have as many and they are neighbours; else 1."""
    hosts = [place.host for place in measured.places]
    each = hosts.count(hosts[0])
    blocks = [hosts[first : first + each] for first in range(0, len(hosts), each)]
    return each if all(len(set(block)) == 1 and len(block) == each for block in blocks) else 1
