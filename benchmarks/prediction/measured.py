"""Real runs, and what their traces say: wall time and utilisation, defined as a simulation defines them.

Wall time: from the first window's start (its pull) to the decision on the last one. Utilisation
(``busy``): of all workers' time in that span the share spent computing windows that were applied;
the emulated part of a step is computing.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.compare.phases import step_end_s
from paceline.runs import rank_files, read_records
from paceline.trace import Setup, Step

SCRIPT = Path(__file__).parents[1] / "scripts" / "emulated.py"

Steps = Sequence[Sequence[Step]]
"""The windows of one Worker, for each rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One strategy's part of a run. ``windows_per_s``: applied, of all workers."""

    time_s: float
    busy: float
    windows_per_s: float


def run(
    emulate: Path, out: Path, *, workers: int, steps: Mapping[str, int], words: Sequence[str] = ()
) -> dict[str, Steps]:
    """What was recorded under each strategy in ``steps``, one after the other in the same processes.

    ``steps``: how many windows each worker is to have on average; ``words``: further options.

    Raises RuntimeError with the run's own words if it failed.
    """
    command = [
        sys.executable, "-m", "paceline.cli", "run", "-n", str(workers), "--emulate", str(emulate),
        "--out", str(out), "--threads", "1", "--quiet", *words, str(SCRIPT),
        *(f"{word}={number}" for word, number in steps.items()),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    ranks = [list(_workers_of(path)) for _, path in rank_files(out)]
    by_worker = [list(steps_of_all) for steps_of_all in zip(*ranks, strict=True)]
    return dict(zip(steps, by_worker, strict=True))


def measured(steps: Steps) -> Measured:
    """The figures of one Worker's windows."""
    began_s = min(own[0].time_s - own[0].pull_s for own in steps if own)
    time_s = max(step_end_s(own[-1]) for own in steps if own) - began_s
    applied = [step for own in steps for step in own if step.applied]
    busy_s = sum(step.data_s + step.forward_s + step.backward_s for step in applied)
    return Measured(
        time_s=time_s,
        busy=busy_s / (len(steps) * time_s),
        windows_per_s=len(applied) / time_s,
    )


def _workers_of(path: Path) -> Iterator[list[Step]]:
    """The windows of each Worker that a process made, in turn."""
    own: list[Step] | None = None
    for record in read_records(path):
        if isinstance(record, Setup):
            if own is not None:
                yield own
            own = []
        elif isinstance(record, Step) and own is not None:
            own.append(record)
    if own is not None:
        yield own
