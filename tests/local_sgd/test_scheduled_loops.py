"""Whole loops of workers under local SGD with a schedule, that end at different times or break off."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from paceline.launch.context import Launch
from paceline.worker import planes
from precision.ranks import Board, BoardGroup, Rank, run_ranks

pytestmark = pytest.mark.usefixtures("one_thread")
UNEVEN, EVEN = (12, 7), (24, 24)
NEVER = 1000


@pytest.mark.parametrize(
    ("word", "batches", "breaks_after", "committed"),
    [
        ("local:3", UNEVEN, NEVER, 2 * 19),
        ("local:3", EVEN, 2, 2 * 14),
        ("diloco:3", EVEN, 1, 2 * 13),
        ("local:inf", EVEN, 2, 2 * 14),
    ],
)
def test_all_end_every_pass_at_the_rate_of_what_was_committed(
    word: str,
    batches: tuple[int, int],
    breaks_after: int,
    committed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop itself compares rates as a pass ends: it ended with a MismatchError."""
    board = Board(2)
    monkeypatch.setattr(planes, "join", lambda session, device: BoardGroup(board, session.rank))

    def on(launch: Launch) -> list[float]:
        model = nn.Linear(3, 2, bias=False)
        nn.init.ones_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.04)
        schedule = CosineAnnealingLR(optimizer, T_max=46)
        rank = Rank(model, optimizer, launch, strategy=word)
        rank.parts.schedules.add(schedule, "batch")
        data = [torch.ones(2, 3)] * batches[launch.rank]
        for _ in range(2):
            for had, inputs in enumerate(rank.batches(data, split=batches is EVEN)):
                if launch.rank == 1 and had == breaks_after:
                    break
                rank.step(rank(inputs).square().mean())
            rank.settle()
        rank.close()
        return [optimizer.param_groups[0]["lr"], schedule.last_epoch]

    first, second = run_ranks(2, on, monkeypatch)
    assert first == second == [rate_after(committed), committed]


def rate_after(steps: int) -> float:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.04)
    schedule = CosineAnnealingLR(optimizer, T_max=46)
    for _ in range(steps):
        optimizer.step()
        schedule.step()
    rate: float = optimizer.param_groups[0]["lr"]
    return rate
