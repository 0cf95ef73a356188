"""Reproduces a cluster's timing on this machine by sleeping after the real work.

A worker has a time line: when, in the cluster, it would have got its parameters, be done with a
micro-batch, have its push at the server. It sleeps until it is there. What this machine takes for what
the cluster's file already speaks of (computing, sending, waking up late) is caught up; what others make
it wait for moves the time line; and so does the user's own code between two batches, of which the file
says nothing. The trace has the time line's times: it tells of the cluster, not of this machine's haste
to keep up. How long things take is the model's word (:mod:`paceline.simulate`); clock and sleep are
passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from paceline.worker.plane import Outcome, Window
from paceline.worker.ways import Ways


class StepTimes(Protocol):
    """How long a worker's micro-batch number ``step`` takes, in seconds."""

    def step_time_s(self, *, rank: int, step: int) -> float: ...


class Pace(Protocol):
    """What a pass tells of its progress to whoever may hold it back."""

    def now_s(self) -> float:
        """The clock by which the worker's phases are measured, in seconds."""

    def begin(self) -> None:
        """A pass begins."""

    def started(self, window: Window) -> Window:
        """``window`` may start: return it when its parameters are there."""

    def hold(self) -> None:
        """A micro-batch is computed: return when it has lasted long enough."""

    def push(self) -> None:
        """The window is computed: return when its push would be there."""

    def decided(self, outcome: Outcome) -> None:
        """The push is decided."""

    def leave(self) -> None:
        """The user's code has its turn."""

    def enter(self) -> None:
        """The user's code has asked for a batch."""


class OwnPace:
    """Nothing is emulated."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.now_s = clock_s

    def begin(self) -> None:
        pass

    def started(self, window: Window) -> Window:
        return window

    def hold(self) -> None:
        pass

    def push(self) -> None:
        pass

    def decided(self, outcome: Outcome) -> None:
        pass

    def leave(self) -> None:
        pass

    def enter(self) -> None:
        pass


class Emulation:
    """Holds this worker back to the model's pace. ``times``: of the micro-batches of ``rank``.

    ``collective``: the plane does not tell waiting from exchanging, so that all of it counts as waiting.
    """

    def __init__(
        self,
        times: StepTimes,
        *,
        rank: int,
        ways: Ways,
        collective: bool,
        clock_s: Callable[[], float],
        sleep_s: Callable[[float], None],
    ) -> None:
        self._times = times
        self._rank = rank
        self._ways = ways
        self._collective = collective
        self._clock_s = clock_s
        self._sleep_s = sleep_s
        self._step = 0
        self._window = -1
        self._exchanges = 1.0
        self._line_s: float | None = None
        self._behind_s = 0.0
        self._left_s: float | None = None

    def now_s(self) -> float:
        """Where the time line is, or would be if it went on as the clock does since it was last set."""
        return self._clock_s() - self._behind_s

    def begin(self) -> None:
        self._line_s = self._left_s = None
        self._behind_s = 0.0

    def started(self, window: Window) -> Window:
        self.enter()
        self._window += 1
        self._exchanges = window.exchanges
        gate_s = window.gate_s
        self._after_waiting(self._clock_s() - window.pull_s, waited_s=gate_s, slack_s=gate_s)
        way_s = self._ways.pull_s(self._window)
        self._go_on(way_s)
        return replace(window, pull_s=way_s)

    def hold(self) -> None:
        self._go_on(self._times.step_time_s(rank=self._rank, step=self._step))
        self._step += 1

    def push(self) -> None:
        if self._exchanges:
            whole = self._exchanges == 1
            self._go_on((self._ways.push_s if whole else self._ways.part_s)(self._window))

    def decided(self, outcome: Outcome) -> None:
        waited_s, since_s = outcome.wait_s, outcome.exchange_s
        if self._collective:
            waited_s, since_s = waited_s + since_s, 0.0
        slack_s = max(0.0, waited_s - self._ways.serving_s)
        self._after_waiting(self._clock_s() - since_s, waited_s=waited_s, slack_s=slack_s)

    def leave(self) -> None:
        self._left_s = self._clock_s()

    def enter(self) -> None:
        if self._left_s is not None and self._line_s is not None:
            self._line_s += self._clock_s() - self._left_s
        self._left_s = None

    def _go_on(self, took_s: float) -> None:
        """Something that takes ``took_s`` in the cluster is over."""
        assert self._line_s is not None, "a window was not started"
        self._line_s += took_s
        left_s = self._line_s - self._clock_s()
        if left_s > 0:
            self._sleep_s(left_s)
        self._behind_s = self._clock_s() - self._line_s

    def _after_waiting(self, ended_s: float, *, waited_s: float, slack_s: float) -> None:
        """A wait of ``waited_s`` ended at ``ended_s``: there the time line goes on. Had this worker come
        up to ``slack_s`` earlier, it would have waited longer and gone on no earlier; what it was late
        beyond that is caught up."""
        late_s = 0.0 if self._line_s is None else ended_s - waited_s - self._line_s
        self._line_s = ended_s - max(0.0, late_s - slack_s)
        self._behind_s = self._clock_s() - self._line_s
