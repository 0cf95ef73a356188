"""A small network, data that repeats itself, and ranks in threads that train it compressed."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from paceline.launch.context import Launch
from precision.ranks import Rank, run_ranks

SIZE = 4
QUICK = ("topk:0.05,warmup=4", "powersgd:2,warmup=2")
FULL = ("randomk:0.25,warmup=0", "int8", "sign")
WORDS = [*QUICK, *[pytest.param(word, marks=pytest.mark.full) for word in FULL]]
"""Every codec; the quick suite has those that keep more than residuals, or less than all values."""


def batches(count: int, spoiled: int = -1) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batch number ``spoiled`` has a target that makes the gradient infinite."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(40, 30, generator=generator)
    made = []
    for number in range(count):
        inputs = torch.randn(SIZE + number % 2, 40, generator=generator)
        made.append(
            (
                inputs,
                torch.tanh(inputs @ weight) if number != spoiled else inputs[:, :30] * math.inf,
            )
        )
    return made


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(40, 50), nn.Tanh(), nn.Linear(50, 30))


class Trained:
    """What one rank ended with."""

    def __init__(
        self, rank: Rank, losses: list[float], sent: list[int], applied: list[bool]
    ) -> None:
        self.parameters = [p.detach().clone() for p in rank.model.parameters()]
        self.own: dict[str, Any] = rank.parts.plane.own_state()
        self.losses, self.sent, self.applied = losses, sent, applied


def train(
    data: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    workers: int = 2,
    momentum: float = 0.9,
    **keywords: Any,
) -> list[Trained]:
    initial = model()  # here: threads share torch's random stream

    def on(launch: Launch) -> Trained:
        net = copy.deepcopy(initial)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=momentum)
        rank = Rank(net, optimizer, launch, **{"strategy": "sync:server", **keywords})
        losses, sent, applied = [], [], []
        rank.parts.moments.decided.listen(lambda outcome: sent.append(outcome.sent_bytes))
        rank.parts.moments.decided.listen(lambda outcome: applied.append(outcome.applied))
        for inputs, targets in rank.batches(data):
            loss = nn.functional.mse_loss(rank(inputs), targets)
            rank.step(loss)
            losses.append(float(loss.detach()))
        trained = Trained(rank, losses, sent, applied)
        rank.close()
        return trained

    return run_ranks(workers, on, monkeypatch)


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


class Mine:
    """A user's codec: one half of the values in one update, the other half in the next."""

    def __init__(self, summable: bool = False) -> None:
        self._summable = summable
        self.decoded = 0

    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        return self._half(values, turn).view(torch.uint8)  # it shares the gradient's memory

    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        out.zero_()
        self._half(out, turn).copy_(parcel.view(out.dtype))
        self.decoded += 1

    def payload_bytes(self, shape: tuple[int, ...], item_bytes: int) -> int:
        return math.prod(shape) // 2 * item_bytes

    def summable(self) -> bool:
        return self._summable

    def _half(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        every = values.view(-1)
        return every[: len(every) // 2] if turn % 2 else every[len(every) // 2 :]
