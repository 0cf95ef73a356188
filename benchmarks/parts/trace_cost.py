"""What recording costs: the records of a real run of model A, written once more and timed.

Reading them back and writing them again, all processes' files, counts whatever a run records, now
or later, without instruments inside the library. Processor seconds for each worker-step, over the
run's step time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from harness.bench import Bench
from harness.figures import step_s
from harness.results import Row
from harness.sides import SideFailedError, paceline_run

from paceline import trace
from paceline.recorder import Recorder
from paceline.runs import read_records

KEY = "trace"
STEPS = 15
REPEATS = 40


def measure(bench: Bench) -> Iterator[Row]:
    """One row."""
    if not bench.wants(KEY):
        return
    launch = paceline_run("ours.py", "--task", "A", workers=2, strategy="async")
    try:
        with bench.started(launch) as (side,):
            bench.say("trace: a run to record")
            one_step_s = step_s(side.ask("block", steps=STEPS))
            out = side.out
    except SideFailedError as error:
        yield Row(key=KEY, value=None, failure=str(error))
        return
    records = [record for path in sorted(out.glob("*.jsonl")) for record in read_records(path)]
    steps = sum(isinstance(record, trace.Step) for record in records)
    spent_s = [_writing_s(records, bench.directory / "again") / steps for _ in range(bench.pairs)]
    size = sum(path.stat().st_size for path in out.glob("*.jsonl")) / steps
    yield Row(
        key=KEY,
        value=median(spent_s) / one_step_s,
        values=[one / one_step_s for one in spent_s],
        unit="share",
        ours_s=one_step_s,
        note=f"{median(spent_s) * 1e6:.0f} us and {size:.0f} bytes a worker-step",
    )


def _writing_s(records: list[trace.Record], path: Path) -> float:
    recorder = Recorder(path, time.monotonic)
    began_s = time.process_time()
    for _ in range(REPEATS):
        for record in records:
            recorder.write(record)
            recorder.flush_if_due()
    recorder.close()
    spent_s = time.process_time() - began_s
    path.unlink()
    return spent_s / REPEATS
