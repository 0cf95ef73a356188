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

KEYS = {
    "numbers N=2 health=10": ("--health", "10"),
    "numbers N=2 clip": ("--clip-norm", "1e6"),
    "numbers N=2 health=10 clip": ("--health", "10", "--clip-norm", "1e6"),
}
STEPS = 20
WARM_STEPS = 10


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each of the two, and one for both."""
    for key, options in KEYS.items():
        if bench.wants(key):
            yield _row(bench, key, options)


def _row(bench: Bench, key: str, options: tuple[str, ...]) -> Row:
    plain, watched = (
        paceline_run("ours.py", "--task", "A", *more, workers=2, strategy="sync")
        for more in ((), options)
    )
    try:
        with bench.started(plain, watched) as (peer, ours):
            bench.say(key)
            for side in (peer, ours):
                side.ask("block", steps=WARM_STEPS)
            pairs = [(_cpu_s(ours), _cpu_s(peer)) for _ in range(bench.pairs)]
    except SideFailedError as error:
        return Row(key=key, value=None, failure=str(error))
    values = [one / other - 1 for one, other in pairs]
    return Row(
        key=key,
        value=median(values),
        values=values,
        unit="share",
        ours_s=median(one for one, _ in pairs),
        peer_s=median(other for _, other in pairs),
        note="processor time a step, all processes; peer: without",
    )


def _cpu_s(side: Side) -> float:
    """Processor seconds a step of all workers."""
    before_s = side.cpu_s()
    side.ask("block", steps=STEPS)
    return (side.cpu_s() - before_s) / STEPS
