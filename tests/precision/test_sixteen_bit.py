"""Models whose parameters have 16 bits: accumulation, masters, versions, the optimizer given back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from paceline.gradients.precision.accumulation import Accumulation
from paceline.gradients.precision.masters import Masters
from paceline.launch.context import Launch
from precision.ranks import Rank, run_ranks

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from precision_accumulation import error, exact, naive, ours

SIXTEEN = [torch.bfloat16, torch.float16]
PLANES = [(1, "sync"), (2, "sync:server"), (2, "sync:allreduce"), (2, "ssp:0")]


pytestmark = pytest.mark.usefixtures("one_thread")


def maker(launch: Launch, strategy: str, **more: Any) -> Callable[..., Rank]:
    def make(model: nn.Module, optimizer: torch.optim.Optimizer, **keywords: Any) -> Rank:
        worker = Rank(model, optimizer, launch, strategy=strategy, **more, **keywords)
        optimizer.register_state_dict_pre_hook(lambda _: worker.parts.plane.sync_optimizer())
        return worker

    return make


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize(("size", "strategy"), PLANES)
def test_64_micro_batches_add_up_as_in_float32(
    size: int, strategy: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = 64 * size
    truth = exact(dtype, batches)

    def train(launch: Launch) -> float:
        return error(ours(dtype, 64, maker(launch, strategy), batches=batches), truth)

    assert max(run_ranks(size, train, monkeypatch)) < 1e-6 < 1e-3


@pytest.mark.parametrize(("size", "strategy"), PLANES)
def test_the_plain_loop_loses_and_an_accumulator_of_its_type_has_its_very_bits(
    size: int, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = 64 * size
    shares = [naive(torch.bfloat16, batches, rank=rank, of=size) for rank in range(size)]
    plain = torch.stack(shares).mean(0)
    assert error(plain, exact(torch.bfloat16, batches)) > 5e-3

    def train(launch: Launch) -> torch.Tensor:
        make = maker(launch, strategy, accumulate_dtype="bf16")
        return ours(torch.bfloat16, 64, make, batches=batches)

    for narrow in run_ranks(size, train, monkeypatch):
        assert torch.equal(narrow, plain)


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize(("size", "strategy"), [*PLANES, (2, "async"), (3, "backup:1")])
def test_updates_too_small_for_the_type_add_up_in_the_masters(
    size: int, strategy: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a quarter of the step from 1 to the number below: the plain loop would stay at 1."""
    updates, step = 64, torch.finfo(dtype).eps / 8

    def train(launch: Launch) -> torch.Tensor:
        model = nn.Linear(1, 1, bias=False, dtype=dtype)
        nn.init.ones_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=step)
        worker = Rank(model, optimizer, launch, strategy=strategy, loss_scale=None)
        data = TensorDataset(torch.ones(updates * size, 1, dtype=dtype))
        for (inputs,) in worker.batches(DataLoader(data)):
            worker.step(worker(inputs).mean())
        worker.close()
        return model.weight.detach().clone()

    weights = run_ranks(size, train, monkeypatch)
    for weight in weights:
        assert weight.dtype == dtype
        assert torch.equal(weight, weights[0])
    if strategy != "backup:1":  # how many pushes come too late is chance
        assert float(weights[0]) == 1 - updates * step
    assert float(weights[0]) < 1 - updates / 3 * step


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "NAdam"])
@pytest.mark.parametrize(("size", "strategy"), PLANES[:3])
def test_the_optimizer_is_given_back_as_a_plain_one(
    size: int, strategy: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(launch: Launch) -> bool:
        model = nn.Linear(4, 2, dtype=torch.bfloat16)
        optimizer = getattr(torch.optim, name)(
            model.parameters(), lr=0.01, **({"momentum": 0.9} if name == "SGD" else {})
        )
        plain_steps(model, optimizer)  # trained before, too
        worker = Rank(model, optimizer, launch, strategy=strategy)
        for (inputs,) in worker.batches(loader_of(4, torch.bfloat16)):
            worker.step(worker(inputs).square().mean())
        worker.close()
        kept = [one is own for one, own in zip(held(optimizer), model.parameters(), strict=True)]
        copy = getattr(torch.optim, name)(model.parameters(), lr=0.01)
        copy.load_state_dict(optimizer.state_dict())
        plain_steps(model, optimizer)
        plain_steps(model, copy)
        return all(kept) and len(optimizer.state) == 2

    assert run_ranks(size, train, monkeypatch) == [True] * size


def test_parameters_of_several_types_each_keep_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(launch: Launch, strategy: str) -> dict[str, torch.Tensor]:
        model = nn.Sequential(
            nn.Linear(4, 6, dtype=torch.bfloat16), nn.Linear(6, 3), nn.Linear(3, 1, bias=False)
        )
        for number, parameter in enumerate(model.parameters()):
            nn.init.constant_(parameter, 0.1 + 0.1 * number)
        model[2].to(torch.float16)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        worker = Rank(model, optimizer, launch, strategy=strategy, clip_norm=1.0, loss_scale=None)
        for (inputs,) in worker.batches(loader_of(8, torch.bfloat16)):
            hidden = model[1](model[0](inputs).float()).half()
            worker.step(model[2](hidden).float().square().mean())
        worker.close()
        return {name: p.detach().clone() for name, p in model.named_parameters()}

    found = []
    for strategy in ("sync:server", "sync:allreduce"):
        first, second = run_ranks(2, partial(train, strategy=strategy), monkeypatch)
        types = [p.dtype for p in first.values()]
        assert types == [torch.bfloat16] * 2 + [torch.float32] * 2 + [torch.float16]
        assert all(torch.equal(first[name], second[name]) for name in first)
        found.append(first)
    for name, value in found[0].items():
        assert torch.allclose(value.float(), found[1][name].float(), rtol=2**-7, atol=2**-9)


def test_what_the_script_writes_to_a_parameter_counts() -> None:
    weight = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    masters = Masters(optimizer, [weight])
    accumulation = Accumulation([weight], None)
    with torch.no_grad():
        weight.fill_(4.0)
    weight.grad = torch.ones(3)
    masters.step(optimizer.step)
    assert weight.tolist() == [3.5] * 3
    masters.close()
    accumulation.close()
    assert weight.grad is None
    weight.sum().backward()
    assert weight.grad.dtype == torch.bfloat16


def loader_of(batches: int, dtype: torch.dtype) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(batches * 2, 4, generator=generator)
    return DataLoader(TensorDataset(inputs.to(dtype)), batch_size=2)


def held(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def plain_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(2):
        model(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
