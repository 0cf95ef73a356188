"""What a 16-bit accumulator loses: ``python benchmarks/precision_accumulation.py [FIGURE.svg]``.

A model with 16-bit parameters, windows of 1 to 64 micro-batches. The window's gradient is held against
the float64 sum of the very gradients that autograd made of each micro-batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from paceline.gradients.precision.accumulation import expected_error

WINDOWS = (1, 2, 4, 8, 16, 32, 64)
TYPES = (torch.bfloat16, torch.float16)
FEATURES, BATCH = 64, 4
FLOOR = 1e-8
"""Where the figure draws what is exact."""


def model_of(dtype: torch.dtype) -> nn.Linear:
    model = nn.Linear(FEATURES, FEATURES)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype)


def data(dtype: torch.dtype, batches: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(4)
    inputs = torch.rand(batches * BATCH, FEATURES, generator=generator)
    return TensorDataset(inputs.to(dtype), (inputs + 1).to(dtype))


def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(outputs.float(), targets.float())


def exact(dtype: torch.dtype, batches: int) -> torch.Tensor:
    """The mean over micro-batches of the weight's gradients, each in its own type, in float64."""
    model, total = model_of(dtype), torch.zeros(FEATURES, FEATURES, dtype=torch.float64)
    for inputs, targets in DataLoader(data(dtype, batches), batch_size=BATCH):
        (gradient,) = torch.autograd.grad(loss_of(model(inputs), targets), [model.weight])
        total += gradient
    return total / batches


def naive(dtype: torch.dtype, micro_batches: int, *, rank: int = 0, of: int = 1) -> torch.Tensor:
    """The plain loop over ``rank``'s share: ``.grad`` has the parameter's type."""
    model = model_of(dtype)
    batches = list(DataLoader(data(dtype, micro_batches), batch_size=BATCH))[rank::of]
    for inputs, targets in batches:
        loss_of(model(inputs), targets).backward()
    assert model.weight.grad is not None
    return model.weight.grad.double() / len(batches)


def ours(
    dtype: torch.dtype, window: int, make_worker: Callable[..., Any], *, batches: int | None = None
) -> torch.Tensor:
    """A Worker's window over ``batches`` of all workers: a first step's momentum is its gradient."""
    model = model_of(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    worker = make_worker(model, optimizer, accumulate=window)
    loader = DataLoader(data(dtype, batches or window), batch_size=BATCH)
    for inputs, targets in worker.batches(loader):
        worker.step(loss_of(worker(inputs), targets))
    held: torch.Tensor = optimizer.state_dict()["state"][0]["momentum_buffer"].double()
    worker.close()
    return held


def error(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Relative, in the 2-norm."""
    return float((found - truth).norm() / truth.norm())


def rows(make_worker: Callable[..., Any]) -> Iterator[tuple[torch.dtype, int, tuple[float, ...]]]:
    """For each type and window: errors of the plain loop and ours, expected and worst by theory."""
    for dtype in TYPES:
        for window in WINDOWS:
            truth = exact(dtype, window)
            plain = error(naive(dtype, window), truth)
            own = error(ours(dtype, window, make_worker), truth)
            yield dtype, window, (plain, own, *expected_error(dtype, window))


def draw(found: list[tuple[torch.dtype, int, tuple[float, ...]]], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.add_subplot()
    for dtype in TYPES:
        mine = [(window, errors) for kind, window, errors in found if kind is dtype]
        name = str(dtype).removeprefix("torch.")
        windows = [window for window, _ in mine]
        axes.plot(windows, [e[0] for _, e in mine], "o-", label=f"{name} accumulator (plain loop)")
        axes.plot(windows, [e[2] for _, e in mine], ":", label=f"{name}, expected")
        ours = [max(e[1], FLOOR) for _, e in mine]
        axes.plot(windows, ours, "s--", label=f"{name} parameters, paceline")
    axes.axhline(FLOOR, color="grey", linewidth=0.5)
    axes.set(xscale="log", yscale="log", xlabel="micro-batches in a window")
    axes.set(ylabel="relative error of the gradient", xticks=WINDOWS, xticklabels=WINDOWS)
    axes.legend(fontsize=8)
    figure.savefig(path)


def main() -> None:
    import paceline

    found = list(rows(paceline.Worker))
    print("| parameters | micro-batches | plain loop | paceline | expected | worst, (k-1) u |")
    print("|---|---|---|---|---|---|")
    for dtype, window, errors in found:
        cells = " | ".join(f"{value:.1e}" for value in errors)
        print(f"| {str(dtype).removeprefix('torch.')} | {window} | {cells} |")
    if len(sys.argv) > 1:
        draw(found, sys.argv[1])


if __name__ == "__main__":
    main()
