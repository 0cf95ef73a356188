"""The policy's second driver: the real coordinator, fed by a heap of times instead of processes.

For what the recurrence cannot say: batches handed out on demand, drops, a server that serves one
push after the other, links. It decides nothing: who starts and what becomes of a push is the
coordinator's word, as in a real run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from paceline import events
from paceline.policy import Coordinator
from paceline.simulate.draws import Floats
from paceline.simulate.engine import Engine
from paceline.simulate.windows import Windows
from paceline.strategies import Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What an exchange takes. ``pull_s[k, i]``, ``push_s[k, i]``: on the way to and from worker i, for
    its window k. ``apply_s``: the server is busy with one push for so long, and with one at a time."""

    pull_s: Floats
    push_s: Floats
    apply_s: float = 0.0


def no_costs(shape: tuple[int, ...]) -> Costs:
    """Computation only. ``shape``: windows, workers."""
    nothing_s = np.broadcast_to(0.0, shape)
    return Costs(pull_s=nothing_s, push_s=nothing_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What there is to do. ``windows``: of all workers together if ``shared`` (handed out as the
    strategy says), else of each worker."""

    windows: int
    shared: bool = True


def simulate(
    strategy: Strategy, window_s: Floats, work: Work, costs: Costs | None = None
) -> Windows:
    """A run of ``strategy``. ``window_s[k, i]``: what window k of worker i takes, in seconds.

    Raises IndexError if a worker computes more windows than ``window_s`` has times for.
    """
    return _Simulation(strategy, window_s, work, costs or no_costs(window_s.shape)).run()


class _Simulation:
    def __init__(self, strategy: Strategy, window_s: Floats, work: Work, costs: Costs) -> None:
        self._times_s = window_s.T.tolist()
        self._pulls_s = costs.pull_s.T.tolist()
        self._pushes_s = costs.push_s.T.tolist()
        self._apply_s = costs.apply_s
        self._at_once = costs.apply_s == 0 and not (costs.pull_s.any() or costs.push_s.any())
        self._workers = window_s.shape[1]
        self._work = work
        self._engine = Engine()
        self._coordinator = Coordinator(
            strategy=strategy, world_size=self._workers, evict_after_s=inf
        )
        self._begun = [0] * self._workers
        self._start_s = [0.0] * self._workers
        self._end_s = [0.0] * self._workers
        self._free_s = 0.0
        self._ranks: list[int] = []
        self._starts_s: list[float] = []
        self._ends_s: list[float] = []
        self._lags: list[int] = []  # -1: dropped
        self._idle: list[int] = []
        self._last_s = 0.0
        self._deeds: dict[type, Callable[[Any], None]] = {
            events.Start: self._start,
            events.Update: self._update,
            events.Drop: self._drop,
        }

    def run(self) -> Windows:
        for rank in range(self._workers):
            self._feed(events.Join(time_s=0.0, rank=rank))
        for rank in range(self._workers):
            self._feed(self._request(rank))
        for rank in range(self._workers):
            self._engine.at(0.0, self._pull, rank)
        self._engine.run()
        lags = np.array(self._lags, dtype=np.int64)
        return Windows(
            workers=self._workers, total_s=self._last_s, rank=np.array(self._ranks, dtype=np.int64),
            start_s=np.array(self._starts_s), end_s=np.array(self._ends_s), applied=lags >= 0,
            lag=np.maximum(lags, 0),
        )  # fmt: skip

    def _request(self, rank: int) -> events.Request:
        return events.Request(
            time_s=0.0, rank=rank, pass_id=0, total=self._work.windows, window=1, depth=1,
            weight=1.0, split=self._work.shared,
        )  # fmt: skip

    def _feed(self, fact: events.Fact) -> None:
        for order in self._coordinator.feed(fact):
            deed = self._deeds.get(type(order))
            if deed is not None:
                deed(order)

    # ------------------------------------------------------------------------ what happens

    def _pull(self, rank: int) -> None:
        self._feed(events.Pull(time_s=self._engine.now_s, rank=rank))

    def _computed(self, rank: int) -> None:
        self._end_s[rank] = self._engine.now_s
        if self._at_once:
            self._push(rank)
        else:
            push_s = self._pushes_s[rank][self._begun[rank] - 1]
            self._engine.at(self._engine.now_s + push_s, self._queue, rank)

    def _queue(self, rank: int) -> None:
        """The push has arrived; the server takes it up when it is through with the ones before."""
        self._free_s = max(self._free_s, self._engine.now_s) + self._apply_s
        self._engine.at(self._free_s, self._push, rank)

    def _push(self, rank: int) -> None:
        self._feed(events.Push(time_s=self._engine.now_s, rank=rank, weight=1.0, unit=1.0))
        decided, self._idle = self._idle, []
        for other in decided:
            self._pull(other)

    # ------------------------------------------------------------------------------- orders

    def _start(self, order: events.Start) -> None:
        rank, number = order.rank, self._begun[order.rank]
        self._begun[rank] += 1
        begin_s = self._engine.now_s
        if not self._at_once:
            begin_s += self._pulls_s[rank][number]
        self._start_s[rank] = begin_s
        self._engine.at(begin_s + self._times_s[rank][number], self._computed, rank)

    def _update(self, order: events.Update) -> None:
        for rank, lag in zip(order.ranks, order.lags, strict=True):
            self._decided(rank, lag)

    def _drop(self, order: events.Drop) -> None:
        self._decided(order.rank, -1)

    def _decided(self, rank: int, lag: int) -> None:
        self._ranks.append(rank)
        self._starts_s.append(self._start_s[rank])
        self._ends_s.append(self._end_s[rank])
        self._lags.append(lag)
        self._last_s = self._engine.now_s
        self._idle.append(rank)
