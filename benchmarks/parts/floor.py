"""Model A's physical floor: computation, and the passes over memory that no implementation can save.

Computation: N processes at once, forward and backward only. Bandwidth: what N processes adding
vectors of 100 MB reach together. A pass reads or writes all parameters (100 MB) once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from harness.bench import Bench
from harness.figures import step_s, steps_for
from harness.results import Row
from harness.sides import Side, SideFailedError, torch_group

PARAMETER_BYTES = 25 * (1000 * 1000 + 1000) * 4
SGD = 5
"""SGD with momentum reads gradient, momentum and parameter, writes momentum and parameter."""
BANDWIDTH_PASSES = 10


def passes(word: str, workers: int) -> int:
    """Passes over 100 MB that a step of all workers needs at least, in shared memory.

    ``sync``: the sum reads N gradients and is written once; one optimizer; all workers could read
    the same new parameters. ``allreduce``: the same sum, and N optimizers. ``async``: N optimizer
    steps on the workers' own gradients, and a whole version for each worker that nobody changes
    under its hands: one copy each (read, write). Gradients are written by backward itself.
    """
    needed = {
        "sync": workers + 1 + SGD,
        "allreduce": workers + 1 + workers * SGD,
        "async": workers * (SGD + 2),
    }
    return needed[word]


def floor_s(word: str, workers: int, computation_s: float, bytes_per_s: float) -> float:
    """Seconds a step of ``workers`` workers takes at the very least."""
    return computation_s + passes(word, workers) * PARAMETER_BYTES / bytes_per_s


def measure(bench: Bench) -> Iterator[Row]:
    """``floor N=2`` and ``N=4``: the computation; and the bandwidth of each."""
    for workers in (2, 4):
        if bench.wants(_key(workers)):
            yield from _rows(bench, workers)


def floors(rows: Mapping[str, Row]) -> Iterator[tuple[str, int, float, float, Row]]:
    """(strategy, N, computation_s, floor_s, the contest's row) for what both were measured of."""
    for workers in (2, 4):
        computation, bandwidth = rows.get(_key(workers)), rows.get(_bandwidth_key(workers))
        if not (computation and bandwidth and computation.ours_s and bandwidth.value):
            continue
        for word in ("sync", "async", "allreduce"):
            row = rows.get(f"A N={workers} {word}")
            if row is not None and row.ours_s is not None:
                least_s = floor_s(word, workers, computation.ours_s, bandwidth.value * 1e9)
                yield word, workers, computation.ours_s, least_s, row


def _rows(bench: Bench, workers: int) -> Iterator[Row]:
    launch = torch_group("independent.py", "--task", "A", workers=workers)
    try:
        with bench.started(launch) as (side,):
            bench.say(_key(workers))
            computation_s = _computation_s(side, bench)
            bandwidths = [_bandwidth(side) for _ in range(bench.pairs)]
    except SideFailedError as error:
        yield Row(key=_key(workers), value=None, failure=str(error))
        return
    values_ms = [one * 1e3 for one in computation_s]
    yield Row(
        key=_key(workers),
        value=median(values_ms),
        values=values_ms,
        unit="ms",
        ours_s=median(computation_s),
        note="forward and backward alone, all workers at once",
    )
    yield Row(
        key=_bandwidth_key(workers),
        value=median(bandwidths),
        values=bandwidths,
        unit="GB/s",
        note="all workers together",
    )


def _computation_s(side: Side, bench: Bench) -> list[float]:
    steps = steps_for(bench.block_s, step_s(side.ask("block", steps=3)))
    return [step_s(side.ask("block", steps=steps)) for _ in range(bench.pairs)]


def _bandwidth(side: Side) -> float:
    answers = side.ask("bandwidth", passes=BANDWIDTH_PASSES)
    return float(sum(answer["bytes_per_s"] for answer in answers)) / 1e9


def _key(workers: int) -> str:
    return f"floor N={workers}"


def _bandwidth_key(workers: int) -> str:
    return f"floor N={workers} bandwidth"
