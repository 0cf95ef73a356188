"""Meetings: every rank learns the same, whoever skips, lags or leaves, and nobody waits for ever."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from paceline.worker.meetings import BACKWARD, FORWARD, Meetings, Subject, chosen
from worker.table import Table, at_once

Script = list[Any]
"""A rank's window: layers to go forward through; ("b", n): backward through its n-th forward."""


def play(table: Table, rank: int, windows: list[Script]) -> dict[str, Any]:
    """What the rank saw: its results, and the subject and number of shares of every meeting."""
    seen: list[Any] = []
    witness = lambda subject, shares: seen.append((subject.kind, subject.key, len(shares)))  # noqa: E731
    meetings = Meetings(table.seat(rank), witness)
    results: list[Any] = []
    for script in windows:
        meetings.begin()
        numbers: list[int] = []
        for action in script:
            back = isinstance(action, tuple)
            subject = (
                Subject(kind=BACKWARD, key=numbers[action[1]])
                if back
                else Subject(kind=FORWARD, key=action)
            )
            share = torch.tensor([10.0**rank], dtype=torch.float64)
            number, shares = meetings.attend(subject, share)
            if not back:
                numbers.append(number)
            results.append(sum(float(one) for one in shares))
        meetings.end()
        assert not meetings.open
    return {"seen": seen, "results": results}


def run(*scripts: list[Script]) -> list[dict[str, Any]]:
    table = Table(len(scripts))
    played = at_once(len(scripts), lambda rank: play(table, rank, scripts[rank]))
    assert all(one["seen"] == played[0]["seen"] for one in played), "all ranks see the same"
    return played


STEP: Script = [0, 1, ("b", 1), ("b", 0)]


def test_ranks_in_step_add_up_layer_by_layer() -> None:
    both = run([STEP, STEP], [STEP, STEP])
    assert all(one["results"] == [11.0] * 8 for one in both)
    assert len(both[0]["seen"]) == 2 * (4 + 1), "one turn a subject, and one to end the window"


def test_a_rank_without_a_batch_adds_nothing_and_holds_nobody_up() -> None:
    played = run([STEP, STEP], [STEP, []], [[], STEP])
    assert played[0]["results"] == [11.0] * 4 + [101.0] * 4
    assert played[2]["results"] == [101.0] * 4


def test_after_a_forward_without_backward_the_next_forwards_meet_again() -> None:
    left = [0, 1, *STEP[:2], ("b", 3), ("b", 2)]  # its first batch was skipped after the forward
    full = [*STEP, 0, 1, ("b", 3), ("b", 2)]
    skipped, whole = run([left], [full])
    assert whole["results"] == [11.0, 11.0, 10.0, 10.0, 11.0, 11.0, 11.0, 11.0]
    assert skipped["results"] == [11.0] * 6


def test_one_rank_that_breaks_off_in_a_forward_leaves_the_rest_to_the_others() -> None:
    broken, whole = run([[0]], [STEP])
    assert broken["results"] == [11.0]
    assert whole["results"] == [11.0, 10.0, 10.0, 10.0]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_ranks_do_all_windows_end_and_all_see_the_same(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.randint(2, 4)

    def script() -> Script:
        actions: Script = []
        forwards = 0
        for _ in range(draw.randint(0, 6)):
            if forwards and draw.random() < 0.4:
                actions.append(("b", draw.randrange(forwards)))
            else:
                actions.append(draw.randrange(3))
                forwards += 1
        return actions

    played = run(*[[script() for _ in range(3)] for _ in range(size)])
    for rank, one in enumerate(played):
        assert all(int(total) // 10**rank % 10 == 1 for total in one["results"])


def test_a_backward_comes_first_then_the_lowest_rank() -> None:
    first, second = Subject(kind=FORWARD, key=5), Subject(kind=FORWARD, key=2)
    back, idle = Subject(kind=BACKWARD, key=9), Subject(kind=0, key=0)
    assert chosen([idle, first, second]) == first
    assert chosen([first, idle, back]) == back
    assert chosen([idle, idle]) == idle
