"""N = 1: processor time that the library adds to a step of 5 ms, as a share of the step.

Many short pairs rather than five long ones: what is looked for is 2 % of a step, less than a step
varies, and the pairs cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from harness.bench import Bench
from harness.results import Row
from harness.sides import SideFailedError, paceline_run

KEY = "overhead N=1"
STEPS = 32
PAIRS_PER_PAIR = 6


def measure(bench: Bench) -> Iterator[Row]:
    """One row: the median over the pairs of (ours - plain) / plain, in processor seconds a step."""
    if not bench.wants(KEY):
        return
    launch = paceline_run("alone.py", "--task", "5 ms", workers=1, strategy="sync")
    try:
        with bench.started(launch) as (side,):
            side.ask("pair", steps=STEPS, plain_first=True)
            bench.say(KEY)
            pairs = [
                side.ask("pair", steps=STEPS, plain_first=number % 2 == 0)[0]
                for number in range(bench.pairs * PAIRS_PER_PAIR)
            ]
    except SideFailedError as error:
        yield Row(key=KEY, value=None, failure=str(error))
        return
    ours_s = median(pair["ours_s"] for pair in pairs)
    peer_s = median(pair["peer_s"] for pair in pairs)
    values = [pair["ours_s"] / pair["peer_s"] - 1 for pair in pairs]
    added = median(pair["ours_s"] - pair["peer_s"] for pair in pairs)
    yield Row(
        key=KEY,
        value=median(values),
        values=values,
        unit="share",
        ours_s=ours_s,
        peer_s=peer_s,
        note=f"{added * 1e6:.0f} us of processor time added a step",
    )
