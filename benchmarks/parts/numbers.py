"""What trust in the numbers costs: processor time that clipping and gradient health add to a step of A.

All processes of the run count, the server too. The votes on what is finite are in both sides: they
cannot be switched off.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from harness.bench import Bench
from harness.results import Row
from harness.sides import Side, SideFailedError, paceline_run

KEY = "numbers N=2 health=10 clip"
OPTIONS = ("--health", "10", "--clip-norm", "1e6")
STEPS = 20
WARM_STEPS = 10
PAIRS_PER_PAIR = 4
"""What is looked for is 3 % of what varies by 10 % from one block to the next."""


def measure(bench: Bench) -> Iterator[Row]:
    """One row."""
    if bench.wants(KEY):
        yield _row(bench)


def _row(bench: Bench) -> Row:
    plain, watched = (
        paceline_run("ours.py", "--task", "A", *more, workers=2, strategy="sync")
        for more in ((), OPTIONS)
    )
    try:
        with bench.started(plain, watched) as (peer, ours):
            bench.say(KEY)
            for side in (peer, ours):
                side.ask("block", steps=WARM_STEPS)
            pairs = [_pair(ours, peer, n % 2 == 0) for n in range(bench.pairs * PAIRS_PER_PAIR)]
    except SideFailedError as error:
        return Row(key=KEY, value=None, failure=str(error))
    values = [one / other - 1 for one, other in pairs]
    return Row(
        key=KEY,
        value=median(values),
        values=values,
        unit="share",
        ours_s=median(one for one, _ in pairs),
        peer_s=median(other for _, other in pairs),
        note="processor time a step, all processes; peer: without",
    )


def _pair(ours: Side, peer: Side, peer_first: bool) -> tuple[float, float]:
    """Ours and the peer's, in turn."""
    if peer_first:
        other = _cpu_s(peer)
        return _cpu_s(ours), other
    return _cpu_s(ours), _cpu_s(peer)


def _cpu_s(side: Side) -> float:
    """Processor seconds a step of all workers."""
    before_s = side.cpu_s()
    side.ask("block", steps=STEPS)
    return (side.cpu_s() - before_s) / STEPS
