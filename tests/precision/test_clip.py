"""One norm for all ranks, and clipping to it: unscaled, over the whole window, in every precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from paceline.launch.context import Launch
from precision.ranks import Rank, run_ranks

CLIP = 0.125
BATCH, WINDOW = 4, 3
PLANES = [
    (1, "sync"),
    (2, "sync:server"),
    (2, "sync:allreduce"),
    (3, "ssp:0"),
    (3, "sync:allreduce"),
]
SCALED = {"loss_scale": 2.0**12}
PRECISIONS: list[tuple[torch.dtype, dict[str, Any], float]] = [
    (torch.float64, {}, 1e-12),
    (torch.float32, {}, 1e-5),
    (torch.float32, {"precision": "bf16"}, 3e-2),
    (torch.float32, {"precision": "fp16", **SCALED}, 4e-3),
    (torch.bfloat16, {}, 3e-2),
    (torch.float16, SCALED, 4e-3),
]


pytestmark = pytest.mark.usefixtures("one_thread")


def model_of(dtype: torch.dtype) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    for number, parameter in enumerate(model.parameters()):
        values = torch.linspace(-0.5, 0.7, parameter.numel()) + 0.05 * number
        parameter.data = values.view_as(parameter).to(dtype)
    return model


def data_of(batches: int, dtype: torch.dtype) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(batches * BATCH, 6, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs.to(dtype), inputs[:, :2].contiguous())


def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(outputs.double(), targets)


def large_batch_norm(batches: int) -> float:
    model = model_of(torch.float64)
    inputs, targets = data_of(batches, torch.float64).tensors
    loss_of(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    return float(nn.utils.clip_grad_norm_(model.parameters(), CLIP))


@pytest.mark.parametrize(("dtype", "keywords", "close"), PRECISIONS)
@pytest.mark.parametrize(("size", "strategy"), PLANES)
def test_the_norm_is_the_large_batchs_and_what_is_applied_has_the_norm_asked_for(
    size: int,
    strategy: str,
    dtype: torch.dtype,
    keywords: dict[str, Any],
    close: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = size * WINDOW

    def train(launch: Launch) -> tuple[float | None, float]:
        model = model_of(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        worker = Rank(
            model, optimizer, launch,
            strategy=strategy, accumulate=WINDOW, clip_norm=CLIP, **keywords,
        )  # fmt: skip
        for inputs, targets in worker.batches(DataLoader(data_of(batches, dtype), BATCH)):
            result = worker.step(loss_of(worker(inputs), targets))
        worker.parts.plane.sync_optimizer()
        entries = optimizer.state_dict()["state"].values()
        applied = torch.cat([entry["momentum_buffer"].flatten() for entry in entries])
        worker.close()
        return result.norm, float(applied.norm())

    ranks = run_ranks(size, train, monkeypatch)
    assert len(set(ranks)) == 1, "the same bits on every rank"
    norm, applied = ranks[0]
    assert norm == pytest.approx(large_batch_norm(batches), rel=close)
    assert norm is not None
    assert norm > 2 * CLIP
    assert applied == pytest.approx(CLIP, rel=1e-5)
