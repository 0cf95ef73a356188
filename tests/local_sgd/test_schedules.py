"""Schedules under local SGD: the rate in every window, against counting; whatever a rank leaves undone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    SequentialLR,
)

from local_sgd.threads import Rank, played
from local_sgd.toy import maker
from paceline.errors import UsageError
from paceline.worker.plane import Window
from paceline.worker.scheduling import Schedules

MAKE = maker("SGD", lr=0.1, momentum=0.9)
SCHEDULERS: dict[str, Callable[[Any], LRScheduler]] = {
    "cosine": lambda optimizer: CosineAnnealingLR(optimizer, T_max=46),
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda n: 0.97**n),
    "one cycle": lambda optimizer: OneCycleLR(optimizer, max_lr=0.2, total_steps=200),
    "cyclic": lambda optimizer: CyclicLR(optimizer, base_lr=0.01, max_lr=0.1, step_size_up=7),
    "sequence": lambda optimizer: SequentialLR(
        optimizer,
        [ExponentialLR(optimizer, 0.9), CosineAnnealingLR(optimizer, T_max=30)],
        milestones=[7],
    ),
}
pytestmark = pytest.mark.usefixtures("one_thread")


def rates_of(make: Callable[[Any], LRScheduler], count: int = 120) -> list[float]:
    """The rate after 0, 1, 2, ... steps of a plain loop."""
    _, optimizer = MAKE(0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(count):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@dataclass(kw_only=True)
class Counted:
    """What a pass of local SGD comes to. ``windows``: batches of each window, by rank. ``spoiled``: (rank,
    window). ``leaves``: as a play's. ``reads``: committed batches that each rank goes by in its windows."""

    every: float
    windows: list[list[int]]
    leaves: dict[int, int] = field(default_factory=dict)
    spoiled: tuple[tuple[int, int], ...] = ()
    window: int = 1
    committed: int = 0

    def passed(self) -> list[list[int]]:
        reads: list[list[int]] = [[] for _ in self.windows]
        live = sum(map(bool, self.windows))
        while live:
            computed = 0
            for rank in range(len(self.windows)):
                computed += self._round(rank, reads[rank], live)
            self.committed += computed
            live = sum(not self._over(rank, reads[rank]) for rank in range(len(self.windows)))
        return reads

    def _round(self, rank: int, reads: list[int], live: int) -> int:
        batches, done = 0, 0
        while done < self.every and not self._over(rank, reads):
            number = len(reads)
            reads.append(self.committed + live * self.window * done)
            done += 1
            if number != self.leaves.get(rank) and (rank, number) not in self.spoiled:
                batches += self.windows[rank][number]
        return batches

    def _over(self, rank: int, reads: list[int]) -> bool:
        return len(reads) > self.leaves.get(rank, math.inf) or len(reads) == len(self.windows[rank])


class Scheduled:
    """Schedules beside each rank of a play, as a pass of the loop drives them. ``rates``: of each window."""

    def __init__(self, make: Callable[[Any], LRScheduler]) -> None:
        self.make = make
        self.schedules: dict[int, Schedules] = {}
        self.rates: dict[int, list[float]] = {}

    def begin(self, rank: Rank) -> None:
        self.schedules[rank.rank] = Schedules(0)
        self.schedules[rank.rank].add(self.make(rank.optimizer), "batch")
        self.rates[rank.rank] = []

    def look(self, rank: Rank, window: Window) -> None:
        self.advance(rank)
        self.rates[rank.rank].append(rank.optimizer.param_groups[0]["lr"])

    def advance(self, rank: Rank) -> None:
        now = rank.plane.position()
        self.schedules[rank.rank].advance_to(now.progress, estimated=now.estimated)


ENDINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "data of their own": (
        {"totals": (12, 7), "world": 2},
        {"windows": [[1] * 12, [1] * 7]},
    ),
    "nothing on one rank": (
        {"totals": (12, 0), "world": 2},
        {"windows": [[1] * 12, []]},
    ),
    "a break": (
        {"total": 24, "world": 2, "leaves": {1: 2}},
        {"windows": [[1] * 12] * 2, "leaves": {1: 2}},
    ),
    "an early break": (
        {"total": 24, "world": 2, "leaves": {1: 1}},
        {"windows": [[1] * 12] * 2, "leaves": {1: 1}},
    ),
    "all leave": (
        {"total": 36, "world": 3, "leaves": {0: 4, 1: 1, 2: 0}},
        {"windows": [[1] * 12] * 3, "leaves": {0: 4, 1: 1, 2: 0}},
    ),
    "a stream of pairs": (
        {"total": 17, "world": 2, "window": 2, "known": False},
        {"windows": [[2, 2, 2, 2, 1], [2, 2, 2, 2, 0]], "window": 2},
    ),
    "a NaN in the last round": (
        {"total": 16, "world": 2, "spoiled": ((1, 13), (0, 14))},
        {"windows": [[1] * 8] * 2, "spoiled": ((1, 6), (0, 7))},
    ),
}


@pytest.mark.parametrize(("how", "counted"), ENDINGS.values(), ids=ENDINGS.keys())
@pytest.mark.parametrize(
    "word", ["local:3", "diloco:4", "local:1", "local:inf", "diloco:6:0.7:0.9:2"]
)
def test_the_rate_of_a_window_is_that_of_what_was_committed(
    word: str, how: dict[str, Any], counted: dict[str, Any]
) -> None:
    """Of what was at the last exchange, and what those still in the pass compute since then."""
    scheduled = Scheduled(SCHEDULERS["cosine"])
    ranks = played(
        strategy=word, make=MAKE, at_window=scheduled.look, begin=scheduled.begin, **how
    )  # fmt: skip
    every = {"local:3": 3, "diloco:4": 4, "local:1": 1, "local:inf": math.inf}.get(word, 3)
    oracle = Counted(every=every, **counted)
    expected, rates = oracle.passed(), rates_of(SCHEDULERS["cosine"])
    for rank in ranks:
        assert scheduled.rates[rank.rank] == [rates[n] for n in expected[rank.rank]]
        scheduled.advance(rank)
        assert rank.plane.position().progress == oracle.committed
        assert rank.optimizer.param_groups[0]["lr"] == rates[oracle.committed]


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS.keys())
def test_every_schedule_can_go_back(make: Callable[[Any], LRScheduler]) -> None:
    _, optimizer = MAKE(0)
    schedules = Schedules(0)
    schedules.add(make(optimizer), "batch")
    rates = rates_of(make)
    before = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
    for settled, expected in ((0, 9), (5, 12), (5, 30), (31, 40), (33, 33)):
        schedules.advance_to(settled)
        assert optimizer.param_groups[0]["lr"] == rates[settled]
        schedules.advance_to(expected, estimated=True)
        assert optimizer.param_groups[0]["lr"] == rates[expected]
    schedules.advance_to(33)
    assert optimizer.param_groups[0].keys() == {"params", *before}
    assert schedules.states()[0]["state"]["last_epoch"] == 33


def test_a_tensor_of_a_rate_stays_the_tensor_that_it_is() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.5))
    rate = optimizer.param_groups[0]["lr"]
    schedules = Schedules(0)
    schedules.add(ExponentialLR(optimizer, 0.5), "batch")
    schedules.advance_to(4, estimated=True)
    schedules.advance_to(1)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25


def test_what_a_script_changed_by_hand_is_not_undone() -> None:
    _, optimizer = MAKE(0)
    schedules = Schedules(0)
    schedules.add(ExponentialLR(optimizer, 0.5), "batch")
    schedules.advance_to(2, estimated=True)
    optimizer.param_groups[0]["lr"] = 8.0
    schedules.advance_to(4, estimated=True)
    assert optimizer.param_groups[0]["lr"] == 2.0
    schedules.advance_to(3)
    assert optimizer.param_groups[0]["lr"] == 4.0
    schedules.advance_to(5, estimated=True)
    optimizer.param_groups[0]["lr"] = 8.0
    schedules.advance_to(3)
    assert optimizer.param_groups[0]["lr"] == 8.0, "not behind the change: it waits for 5"
    schedules.advance_to(6)
    assert optimizer.param_groups[0]["lr"] == 4.0


def test_a_schedule_without_a_state_is_refused() -> None:
    class Bare:
        def __init__(self, optimizer: Any) -> None:
            self.optimizer = optimizer

        def step(self) -> None:
            return

    schedules = Schedules(0)
    schedules.add(Bare(MAKE(0)[1]), "batch")  # type: ignore[arg-type]
    schedules.advance_to(3)
    with pytest.raises(UsageError, match=r"Bare.*state_dict and load_state_dict"):
        schedules.advance_to(5, estimated=True)
