"""What fp16 does to gradients of about 1e-8, and what helps: ``python benchmarks/precision_story.py``.

Or with workers: ``paceline run -n 2 benchmarks/precision_story.py``. A small regression whose loss is
multiplied by 1e-8 (and its learning rate by 1e8) is trained in several ways; the last row rounds each
gradient to fp16 by hand, as a 16-bit all-reduce without a scale does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SMALL = 1e-8
SAMPLES, FEATURES, HIDDEN = 512, 16, 32
EPOCHS = 12
RATE = 0.05 / SMALL


@dataclass(frozen=True, kw_only=True)
class Way:
    """One row: the Worker's keywords, the parameters' type, what is done to each gradient."""

    name: str
    keywords: dict[str, Any]
    dtype: torch.dtype = torch.float32
    spoil: Callable[[torch.Tensor], torch.Tensor] | None = None


@dataclass(frozen=True, kw_only=True)
class Ending:
    """``first``, ``last``: loss over the whole data; ``zeros``: share of gradient values that are
    zero where float32's are not; ``scale``: at the end."""

    first: float
    last: float
    zeros: float
    scale: float


FP32 = Way(name="fp32", keywords={})
WAYS = (
    FP32,
    Way(name="bf16 autocast", keywords={"precision": "bf16"}),
    Way(name="fp16 autocast, loss scale dynamic", keywords={"precision": "fp16"}),
    Way(name="fp16 autocast, no loss scale", keywords={"precision": "fp16", "loss_scale": None}),
    Way(name="fp16 parameters, fp32 masters, loss scale dynamic", keywords={}, dtype=torch.float16),
    Way(name="fp16 on the wire (scaled into range)", keywords={"reduce_dtype": "fp16"}),
    Way(name="gradients rounded to fp16 by hand", keywords={}, spoil=lambda g: g.half().float()),
)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and targets with a noise that no model explains (so that the last loss is not 0)."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    noise = torch.randn(SAMPLES, 1, generator=generator)
    return inputs, torch.tanh(inputs.sum(1, keepdim=True) / 4) + 0.5 * noise


def model_of(dtype: torch.dtype) -> nn.Module:
    generator = torch.Generator().manual_seed(2)
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype)


def trained(way: Way, make_worker: Callable[..., Any]) -> Ending:
    """Train in this ``way`` with the worker that ``make_worker(model, optimizer, **keywords)`` makes."""
    inputs, targets = data()
    loader = DataLoader(TensorDataset(inputs.to(way.dtype), targets), batch_size=16)
    model = model_of(way.dtype)
    if way.spoil is not None:
        for parameter in model.parameters():
            parameter.register_hook(way.spoil)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    first, zeros = full_loss(model, way.dtype), []
    worker = make_worker(model, optimizer, **way.keywords)
    watch(model, zeros)
    scale = 1.0
    for _ in range(EPOCHS):
        for x, y in worker.batches(loader):
            scale = worker.step(SMALL * nn.functional.mse_loss(worker(x), y)).scale
    worker.close()
    lost = sum(zeros) / len(zeros)
    return Ending(first=first, last=full_loss(model, way.dtype), zeros=lost, scale=scale)


def watch(model: nn.Module, zeros: list[float]) -> None:
    """Note the share of exact zeros in each gradient as autograd hands it over."""
    for parameter in model.parameters():
        parameter.register_hook(lambda g: zeros.append(float((g == 0).float().mean())))


@torch.no_grad()
def full_loss(model: nn.Module, dtype: torch.dtype) -> float:
    inputs, targets = data()
    return float(nn.functional.mse_loss(model(inputs.to(dtype)).float(), targets))


def rows(make_worker: Callable[..., Any]) -> Iterator[str]:
    yield "| way | loss at first | at last | against fp32 | gradient values lost | loss scale |"
    yield "|---|---|---|---|---|---|"
    reference = None
    for way in WAYS:
        ending = trained(way, make_worker)
        reference = reference or ending.last
        yield (
            f"| {way.name} | {ending.first:.4f} | {ending.last:.4f} | "
            f"{ending.last / reference - 1:+.2%} | {ending.zeros:.0%} | {ending.scale:g} |"
        )


def main() -> None:
    import paceline

    def make_worker(model: nn.Module, optimizer: torch.optim.Optimizer, **keywords: Any) -> Any:
        return paceline.Worker(model, optimizer, strategy="sync:allreduce", **keywords)

    rank = paceline.current_launch().rank
    for row in rows(make_worker):
        if rank == 0:
            print(row, flush=True)


if __name__ == "__main__":
    main()
