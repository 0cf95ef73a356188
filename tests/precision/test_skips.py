"""A NaN or an infinity on any rank, in any micro-batch of a window, under every kind of strategy.

One training meets all combinations in turn, each in a window of its own, a clean one before and after.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from paceline.gradients.precision.loss_scale import INITIAL
from paceline.launch.context import Launch
from paceline.worker.results import StepResult
from precision.ranks import Rank, run_ranks

WINDOW = 3
BATCH = 2
BAD = (float("nan"), float("inf"))
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9),
    "fused-sgd": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, fused=True),
    "fused-adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
}
Spoil = tuple[int, int, int, float]  # window, rank, micro-batch, value


pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(kw_only=True)
class Trained:
    """What one rank saw: a result, parameters and a learning rate for each of its windows."""

    results: list[StepResult] = field(default_factory=list)
    parameters: list[torch.Tensor] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    @property
    def applied(self) -> list[bool]:
        return [result.applied for result in self.results]

    @property
    def scales(self) -> list[float]:
        return [result.scale for result in self.results]


def combinations(world_size: int) -> list[Spoil]:
    every = itertools.product(range(world_size), range(WINDOW), BAD)
    return [(2 * number + 1, *one) for number, one in enumerate(every)]


def loader_of(windows: list[int], world_size: int) -> DataLoader[Any]:
    """The batches of these windows of all workers, each window's always the same."""
    data = []
    for window in windows:
        generator = torch.Generator().manual_seed(window)
        samples = BATCH * WINDOW * world_size
        inputs = torch.randn(samples, 4, generator=generator)
        data.append((inputs, inputs.sum(1, keepdim=True)))
    inputs, targets = (torch.cat(part) for part in zip(*data, strict=True))
    return DataLoader(TensorDataset(inputs, targets), batch_size=BATCH)


def trainer(
    loader: DataLoader[Any], spoils: list[Spoil], *, optimizer: str = "sgd", **keywords: Any
) -> Callable[[Launch], Trained]:
    where = {(window, rank, micro): value for window, rank, micro, value in spoils}

    def train(launch: Launch) -> Trained:
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()).view_as(parameter))
                parameter.add_(0.01 * number)
        built = OPTIMIZERS[optimizer](model.parameters())
        worker = Rank(model, built, launch, accumulate=WINDOW, **keywords)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(built, gamma=0.999)
        worker.parts.schedules.add(scheduler, "batch")
        seen = Trained()
        for number, (inputs, targets) in enumerate(worker.batches(loader)):
            window, micro = divmod(number, WINDOW)
            loss = 0.01 * nn.functional.mse_loss(
                worker(inputs), targets
            )  # fp16 can hold 2**16 of it
            bias = model[2].bias
            assert isinstance(bias, torch.Tensor)
            if value := where.get((window, launch.rank, micro)):
                loss = loss + bias.sum() * value
            result = worker.step(loss)
            if result.window_ended:
                seen.results.append(result)
                seen.parameters.append(
                    torch.cat([p.detach().flatten() for p in model.parameters()])
                )
                seen.rates.append(built.param_groups[0]["lr"])
        worker.close()
        return seen

    return train


ROUNDS = [
    (1, "sync"),
    (2, "sync:server"),
    (2, "sync:allreduce"),
    (4, "ssp:0"),
    (4, "sync:allreduce"),
]
FUSED = [(1, "sync"), (2, "sync:server"), (2, "sync:allreduce")]


@pytest.mark.parametrize(
    ("world_size", "strategy", "optimizer"),
    [(n, s, "sgd") for n, s in ROUNDS]
    + [(n, s, o) for n, s in FUSED for o in list(OPTIMIZERS)[1:]],
)
def test_rounds_skip_on_all_ranks_with_one_scale_and_the_next_is_normal(
    world_size: int, strategy: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoils = combinations(world_size)
    windows = list(range(2 * len(spoils) + 1))
    ranks = run_ranks(
        world_size,
        trainer(
            loader_of(windows, world_size), spoils,
            optimizer=optimizer, strategy=strategy, precision="fp16",
        ),
        monkeypatch,
    )  # fmt: skip
    for seen in ranks:
        assert seen.applied == [window % 2 == 0 for window in windows]
        assert seen.scales == [INITIAL / 2 ** (window // 2) for window in windows]
        for window in windows[1:]:
            moved = not torch.equal(seen.parameters[window], seen.parameters[window - 1])
            assert moved == (window % 2 == 0), window
            assert torch.equal(seen.parameters[window], ranks[0].parameters[window])
        for window, rank, _, _ in spoils:
            assert "2.bias" in seen.results[window].reason
            assert world_size == 1 or f"rank {rank}" in seen.results[window].reason


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("world_size", "strategy"), FUSED)
def test_a_skipped_round_leaves_no_trace_in_bits_moments_or_schedule(
    world_size: int, strategy: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoils = combinations(world_size)
    windows = list(range(2 * len(spoils) + 1))

    def outcome(chosen: list[int], spoiled: list[Spoil]) -> list[Trained]:
        loader = loader_of(chosen, world_size)
        train = trainer(loader, spoiled, optimizer=optimizer, strategy=strategy)
        return run_ranks(world_size, train, monkeypatch)

    spoiled = outcome(windows, spoils)
    clean = outcome(windows[::2], [])
    for seen, expected in zip(spoiled, clean, strict=True):
        assert all(expected.applied)
        for number, window in enumerate(windows[::2]):
            assert torch.equal(seen.parameters[window], expected.parameters[number])
            assert seen.rates[window] == expected.rates[number]
        assert set(seen.scales) == {1.0}


@pytest.mark.parametrize("strategy", ["async", "ssp:2"])
@pytest.mark.parametrize("world_size", [2, 4])
def test_a_push_that_stands_alone_is_refused_alone(
    world_size: int, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = list(itertools.product(range(WINDOW), BAD))
    spoils = [
        (2 * number + 1, rank, micro, value)
        for rank in range(world_size)
        for number, (micro, value) in enumerate(bad)
    ]
    loader = loader_of(list(range(2 * len(bad) + 3)), world_size)
    train = trainer(loader, spoils, strategy=strategy, precision="fp16")
    ranks = run_ranks(world_size, train, monkeypatch)
    for seen in ranks:
        expected = INITIAL
        for window, result in enumerate(seen.results):
            refused = window % 2 == 1 and window // 2 < len(bad)
            assert result.applied != refused
            assert result.scale == expected
            expected /= 2 if refused else 1
    final = max(seen.results[-1].version for seen in ranks)
    assert final == sum(sum(seen.applied) for seen in ranks)


def test_backup_ranks_agree_on_the_scale_whatever_came_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server refuses to join pushes of different scales: it would have failed."""
    spoils = [(window, rank, 1, BAD[0]) for window in (1, 4, 5, 9) for rank in (0, 2)]
    train = trainer(loader_of(list(range(30)), 3), spoils, strategy="backup:1", precision="fp16")
    ranks = run_ranks(3, train, monkeypatch)
    versions: dict[int, float] = {}
    for seen in ranks:
        assert seen.scales == sorted(seen.scales, reverse=True)
        for result in seen.results:
            if result.applied:
                assert versions.setdefault(result.version, result.scale) == result.scale
    assert min(versions.values()) < INITIAL
