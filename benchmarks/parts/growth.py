"""Does a step of async take longer with more workers, when computing them costs no processor?

Model A with forward and backward replaced by sleep; the gradients exist and are pushed
(:class:`harness.models._Asleep`). What remains is the exchange: N = 8 workers put four times the
load of N = 2 on the same server and the same cores. The N at which the server alone would be busy all
the time is the step time of N = 2 divided by the processor time that the server spends on a push.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from harness.bench import Bench
from harness.pairing import in_pairs
from harness.results import Row
from harness.sides import Launch, Side, SideFailedError, paceline_run

KEY = "growth async N=2..8"
LIMIT_KEY = "server's limit"
STEPS = 5
LONGER = 4
"""Blocks of this many times the usual length: a pass ends when its last worker has, up to a step after
the first, and that is not what a step takes."""


def measure(bench: Bench) -> Iterator[Row]:
    """The growth, and the N where the server becomes the bottleneck."""
    if not (bench.wants(KEY) or bench.wants(LIMIT_KEY)):
        return
    few, many = _launch(2), _launch(8)
    try:
        with bench.started(few, many) as (peer, ours):
            series = in_pairs(ours, peer, replace(bench, block_s=LONGER * bench.block_s), KEY)
            busy_s = _server_cpu_per_push_s(ours)
    except SideFailedError as error:
        yield Row(key=KEY, value=None, failure=str(error))
        return
    yield series.row(KEY, note="ours: N = 8, peer: N = 2")
    yield Row(
        key=LIMIT_KEY,
        value=median(series.peer_s) / busy_s,
        unit="workers",
        note=f"a push costs the server {busy_s * 1e3:.1f} ms of processor time, all its threads",
    )


def _launch(workers: int) -> Launch:
    arguments = ("--task", "asleep", "--momentum", "0.9")
    return paceline_run("ours.py", *arguments, workers=workers, strategy="async")


def _server_cpu_per_push_s(side: Side) -> float:
    before_s = side.server_cpu_s()
    pushes: int = sum(rank["applied"] for rank in side.ask("block", steps=STEPS))
    return (side.server_cpu_s() - before_s) / pushes
