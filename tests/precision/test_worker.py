"""The public Worker, alone, in each precision: what is cast, what comes back, what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline.errors import UsageError


class Spy(nn.Linear):
    """Notes the types that it computes in and that it is given gradients of."""

    seen: list[torch.dtype]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output = super().forward(inputs)
        self.seen = [output.dtype]
        if output.requires_grad:
            output.register_hook(lambda gradient: self.seen.append(gradient.dtype))
        return output


def loader_of(dtype: torch.dtype = torch.float32) -> DataLoader[Any]:
    inputs = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(inputs.to(dtype), inputs.sum(1, keepdim=True)), batch_size=4)


@pytest.mark.parametrize(
    ("keywords", "parameters", "computes"),
    [
        ({}, torch.float32, torch.float32),
        ({}, torch.float64, torch.float64),
        ({"precision": "bf16"}, torch.float32, torch.bfloat16),
        ({"precision": "fp16"}, torch.float32, torch.float16),
        ({}, torch.bfloat16, torch.bfloat16),
        ({}, torch.float16, torch.float16),
    ],
)
def test_forward_and_backward_compute_in_the_words_type_and_the_rest_is_wide(
    keywords: dict[str, Any], parameters: torch.dtype, computes: torch.dtype
) -> None:
    model = Spy(4, 1).to(parameters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    wide = torch.promote_types(parameters, torch.float32)
    with paceline.Worker(model, optimizer, **keywords) as worker:
        for inputs, targets in worker.batches(loader_of(parameters)):
            outputs = worker(inputs)
            assert outputs.dtype == wide
            worker.step(nn.functional.mse_loss(outputs, targets.to(wide)))
            assert model.seen == [computes, computes]
        moments = optimizer.state_dict()["state"][0]["exp_avg"]
        assert moments.dtype == wide
        with worker.evaluate():
            assert worker(inputs).dtype == wide
    assert model.weight.dtype == parameters


def test_a_loss_beside_the_model_may_join_its_autocast() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    head = torch.ones(4, 4)
    with paceline.Worker(model, optimizer, precision="bf16") as worker:
        with worker.autocast():
            assert (head @ head).dtype == torch.bfloat16
        assert (head @ head).dtype == torch.float32
    with paceline.Worker(model, optimizer) as worker, worker.autocast():
        assert (head @ head).dtype == torch.float32


@pytest.mark.parametrize("scale", [None, 2.0**10, "dynamic"])
def test_a_power_of_two_leaves_fp16_its_bits(scale: Any) -> None:
    """Nothing here leaves fp16's range, so that scaling changes no bit of any update."""
    ends = []
    for own in (None, scale):
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with paceline.Worker(
            model, optimizer, precision="fp16", loss_scale=own, accumulate=2, clip_norm=0.5
        ) as worker:
            for inputs, targets in worker.batches(loader_of()):
                worker.step(0.05 * nn.functional.mse_loss(worker(inputs), targets))
        ends.append(copy.deepcopy(model.state_dict()))
    assert torch.equal(ends[0]["weight"], ends[1]["weight"])


def test_each_change_of_the_scale_is_in_the_trace(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    runtime = paceline.Runtime(out=tmp_path)
    with paceline.Worker(model, optimizer, precision="fp16", runtime=runtime) as worker:
        for number, (inputs, targets) in enumerate(worker.batches(loader_of())):
            loss = 0.01 * nn.functional.mse_loss(worker(inputs), targets)
            scale = worker.loss_scale
            result = worker.step(loss * float("nan") if number in (1, 3) else loss)
            assert result.scale == scale
    assert result.scale == 2.0**14
    records = [json.loads(line) for line in (tmp_path / "rank-0.jsonl").read_text().splitlines()]
    notes = [record[-1] for record in records if record[:1] == ["note"] and "loss-scale" in record]
    assert notes == ["loss scale 65536 -> 32768", "loss scale 32768 -> 16384"]
    assert "loss scale 65536 at first, dynamic" in next(r for r in records if r[0] == "setup")[9]


@pytest.mark.parametrize(
    ("dtype", "keywords"),
    [
        (torch.float64, {"precision": "fp16"}),
        (torch.bfloat16, {"precision": "bf16"}),
        (torch.float32, {"loss_scale": "dynamic"}),
        (torch.float64, {"reduce_dtype": "bf16"}),
    ],
)
def test_what_contradicts_itself_is_refused(dtype: torch.dtype, keywords: dict[str, Any]) -> None:
    model = nn.Linear(4, 1, dtype=dtype)
    with pytest.raises(UsageError, match="cannot work together"):
        paceline.Worker(model, torch.optim.SGD(model.parameters(), lr=0.1), **keywords)
