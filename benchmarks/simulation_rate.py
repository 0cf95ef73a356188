"""How fast clusters are simulated: ``python benchmarks/simulation_rate.py``.

Processor seconds, step times drawn before: the recurrence over 128 workers x 10,000 steps (ssp:3), the
exact driver's facts (Push and Pull) for 128 workers under async, and the memory that 10,000 workers
x 1,000 steps take from drawing to figures.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from time import process_time
from typing import Any

from paceline.simulate.cluster import ClusterModel, Hiccups
from paceline.simulate.driver import Work, simulate
from paceline.simulate.predict import Scenario, predict
from paceline.simulate.recurrence import bounded
from paceline.simulate.timing import window_times
from paceline.strategies import parse_strategy

ROUNDS = 5
HICCUPS = Hiccups(probability=0.05, factor=3.0)


def main() -> None:
    model = ClusterModel(count=128, step_s=1.0, jitter=0.1, hiccups=HICCUPS)
    times_s = window_times(model, 10_000, 1)
    short_s, work = times_s[:1500], Work(windows=128 * 1000)
    strategy = parse_strategy("async")
    recurrence = [spent_s(lambda: bounded(times_s, 3)) for _ in range(ROUNDS)]
    driver = [spent_s(lambda: simulate(strategy, short_s, work)) for _ in range(ROUNDS)]
    said: dict[str, Any] = {
        "worker_steps_per_s": [times_s.size / one_s for one_s in recurrence],
        "facts_per_s": [2 * work.windows / one_s for one_s in driver],
    }
    large = ClusterModel(count=10_000, step_s=1.0, jitter=0.1, hiccups=HICCUPS)
    predict(parse_strategy("ssp:3"), Scenario(cluster=large, steps=1000))
    said["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(said))


def spent_s(act: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    began_s = process_time()
    act()
    return process_time() - began_s


if __name__ == "__main__":
    main()
