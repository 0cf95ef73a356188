"""``batch_norm=``: what the modes do to the layers, what is refused, what is said."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline.errors import UsageError
from paceline.policy.pairings import strategy_for_norms
from paceline.strategies import Sync, parse_strategy
from paceline.worker.batch_norm import norms_of, put_into_mode, refuse_norms, unseen
from paceline.worker.loop import Loop
from paceline.worker.norm_modes import accumulation_notice, norm_mode
from worker.fakes import ScriptedPlane, parts_around


class Centred(nn.BatchNorm1d):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs - 1)


def net(norm: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), norm or nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def data() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(24, 4, generator=generator)
    return DataLoader(
        TensorDataset(inputs, torch.randint(0, 2, (24,), generator=generator)), batch_size=4
    )


def train(model: nn.Module, **options: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with paceline.Worker(model, optimizer, **options) as worker:
        for inputs, targets in worker.batches(data()):
            model.train()  # a user may say so at any time
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))


def by_hand(model: nn.Module, *, frozen: bool) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1].train(not frozen)  # type: ignore[index]
    for inputs, targets in data():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    model.train()


@pytest.mark.parametrize("mode", [None, "local", "sync", "freeze"])
def test_one_worker_is_the_plain_loop_with_its_layers_in_that_mode(mode: str | None) -> None:
    model, twin = net(), net()
    modules = list(model.modules())
    train(model, batch_norm=mode)
    by_hand(twin, frozen=mode == "freeze")
    assert list(model.state_dict()) == list(twin.state_dict())
    for name, value in twin.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    assert all(mine is one for mine, one in zip(model.modules(), modules, strict=True))
    assert all(one.training and "forward" not in vars(one) for one in modules)


def test_frozen_layers_are_trained_but_learn_no_statistics() -> None:
    model = net()
    start = copy.deepcopy(model[1].state_dict())
    train(model, batch_norm="freeze")
    assert torch.equal(model[1].running_mean, start["running_mean"])
    assert int(model[1].num_batches_tracked) == 0
    assert not torch.equal(model[1].weight, start["weight"])


def test_what_cannot_be_put_into_a_mode_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"1 is a torch.*SyncBatchNorm.*batch_norm='sync'"):
        refuse_norms(norms_of(net(nn.SyncBatchNorm(6))), "local", world_size=2)
    refuse_norms(norms_of(net(nn.SyncBatchNorm(6))), "sync", world_size=2)
    refuse_norms(norms_of(net(nn.SyncBatchNorm(6))), "local", world_size=1)
    for mode in ("sync", "freeze"):
        with pytest.raises(UsageError, match=r"1 is a Centred.*'local'"):
            refuse_norms(norms_of(net(Centred(6))), norm_mode(mode), world_size=2)
    refuse_norms(norms_of(net(Centred(6))), "local", world_size=2)
    layers = norms_of(net(nn.BatchNorm1d(6, track_running_stats=False)))
    with pytest.raises(UsageError, match=r"1 and batch_norm='freeze'.*track_running_stats"):
        refuse_norms(layers, "freeze", world_size=1)


@pytest.mark.parametrize("strategy", ["sync:server", "ssp:0"])
def test_sync_at_the_server_is_refused_with_the_topology_that_can(strategy: str) -> None:
    with pytest.raises(UsageError, match=rf"{strategy} and batch_norm='sync'.*'sync:allreduce'"):
        strategy_for_norms(parse_strategy(strategy), "sync")


@pytest.mark.parametrize("strategy", ["ssp:1", "async", "backup:1"])
def test_sync_without_a_common_step_is_refused_with_what_works(strategy: str) -> None:
    words = rf"{strategy} and batch_norm='sync'.*no step in common.*freeze.*local.*GroupNorm"
    with pytest.raises(UsageError, match=words):
        strategy_for_norms(parse_strategy(strategy), "sync")
    for mode in ("local", "freeze"):
        assert strategy_for_norms(parse_strategy(strategy), norm_mode(mode)) is not None


def test_plain_sync_takes_the_topology_that_can() -> None:
    assert strategy_for_norms(Sync(), "sync") == Sync(topology="allreduce")
    assert strategy_for_norms(Sync(), "local") == Sync()


def test_accumulation_is_said_to_leave_the_batch_of_batch_norm_as_it_is() -> None:
    said = accumulation_notice("local", workers=4, window=8, batch=16)
    assert "statistics of 16 samples" in said
    assert "4 x 8 x 16 = 512 samples" in said
    assert "GroupNorm" in said
    assert "freeze" in said
    assert "\n" not in said
    said = accumulation_notice("sync", workers=4, window=8, batch=16)
    assert "statistics of 4 x 16 = 64 samples" in said
    assert accumulation_notice("freeze", workers=4, window=8, batch=16) == ""
    assert accumulation_notice("sync", workers=4, window=1, batch=16) == ""


@pytest.mark.parametrize(
    ("norm", "mode", "window", "lines"),
    [(None, None, 2, 1), (None, None, 1, 0), (nn.GroupNorm(2, 6), "sync", 2, 0),
     (None, "freeze", 2, 1)],
)  # fmt: skip
def test_the_notice_is_one_line_where_there_is_batch_norm(
    norm: nn.Module | None, mode: str | None, window: int, lines: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    train(net(norm), batch_norm=mode, accumulate=window)
    said = [line for line in capsys.readouterr().err.splitlines() if "batch" in line]
    assert len(said) == 1 + lines, "the start line, and the notice"
    if mode == "freeze":
        assert "never seen a batch" in said[1]


def test_statistics_that_were_learned_may_be_frozen_without_a_word() -> None:
    model = net()
    model(torch.randn(3, 4))
    assert unseen(norms_of(model)) == ""


def test_models_without_batch_norm_are_left_alone() -> None:
    model = net(nn.GroupNorm(2, 6))
    norms = put_into_mode(norms_of(model), "sync", ScriptedPlane([], world_size=2))
    assert not norms.layers
    assert all("forward" not in vars(one) for one in model.modules())


def test_buffers_can_be_agreed_at_any_call_of_all_ranks() -> None:
    theirs = torch.full((6,), 4.0)

    def answer(rank: int, facts: dict[str, Any]) -> dict[str, Any]:
        if "buffers" in facts:
            return {**facts, "buffers": [b"other", *facts["buffers"][1:]]}
        first = not plane.calls.count("the end of batches") > 1
        return {**facts, "part": theirs.numpy().tobytes() if first else facts["part"]}

    plane = ScriptedPlane([], world_size=2, answer=answer)
    parts = parts_around(plane, model=net())
    Loop(parts).agree_buffers("worker.save")
    assert plane.calls[0] == "worker.save"
    norm = parts.model[1]  # type: ignore[index]
    assert norm.running_mean.tolist() == [0.0] * 6, "nobody has trained: rank 0's"
