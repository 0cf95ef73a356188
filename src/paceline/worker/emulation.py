"""Reproduces a cluster's timing on this machine by sleeping after the real work.

The model (:mod:`paceline.simulate.cluster`) says how long a micro-batch takes; this waits until it
has taken that long. Clock and sleep are passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class StepTimes(Protocol):
    """How long a worker's micro-batch number ``step`` takes, in seconds."""

    def step_time_s(self, *, rank: int, step: int) -> float: ...


class Emulation:
    """Holds this worker's micro-batches back to the model's pace; real work counts towards it."""

    def __init__(
        self,
        model: StepTimes,
        *,
        rank: int,
        clock_s: Callable[[], float],
        sleep_s: Callable[[float], None],
    ) -> None:
        self._model = model
        self._rank = rank
        self._clock_s = clock_s
        self._sleep_s = sleep_s
        self._step = 0

    def hold(self, handed_out_s: float) -> None:
        """Return when the micro-batch handed out at ``handed_out_s`` has lasted long enough."""
        until_s = handed_out_s + self._model.step_time_s(rank=self._rank, step=self._step)
        self._step += 1
        left_s = until_s - self._clock_s()
        if left_s > 0:
            self._sleep_s(left_s)
