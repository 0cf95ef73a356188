"""Accumulation against one large batch, under every batch-norm mode: the table in docs/batch_norm.md.

    paceline run -n 2 --threads 1 benchmarks/batch_norm.py

Every update is of the same 128 digits, cut into 2 workers x k micro-batches. "First update off by":
how far it is from the large batch's, in units of its length; the losses and accuracies are of the
test images after the last pass, means over seeds.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import torch
from sklearn.datasets import load_digits
from torch import nn

import paceline

UPDATE_SAMPLES = 128
TEST_IMAGES = 360
WARM_UP_PASSES = 1
MODES = ("local", "sync", "freeze", "GroupNorm")
WINDOWS = (1, 4, 8)

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """``off``: |first update - the large batch's| / |the large batch's|."""

    off: float
    loss: float
    accuracy: float


class Digits:
    """The training images in one order per seed and pass, and the test images."""

    def __init__(self, seed: int) -> None:
        data = load_digits()
        self._order = torch.Generator().manual_seed(seed)
        shuffled = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
        images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)[shuffled] / 8 - 1
        labels = torch.tensor(data.target)[shuffled]
        self.test = images[:TEST_IMAGES], labels[:TEST_IMAGES]
        self._train = images[TEST_IMAGES:], labels[TEST_IMAGES:]

    def one_pass(self, size: int) -> list[Batch]:
        """Whole updates' worth of images, in batches of ``size``."""
        images, labels = self._train
        order = torch.randperm(len(labels), generator=self._order)
        order = order[: len(order) // UPDATE_SAMPLES * UPDATE_SAMPLES]
        return [(images[part], labels[part]) for part in order.split(size)]


def net(norm: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), norm(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2), norm(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, stride=2), norm(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 2 * 2, 10),
    )  # fmt: skip


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def plain_loop(model: nn.Module, batches: list[Batch], *, frozen: bool) -> torch.Tensor:
    """Train as plain torch does; return the first update of all parameters."""
    start, optimizer, first = flat(model), sgd(model), None
    for one in model.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.train(not frozen)
    for images, labels in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        first = flat(model) - start if first is None else first
    assert first is not None
    return first


def workers(model: nn.Module, batches: list[Batch], window: int, mode: str) -> torch.Tensor:
    """Train with all workers; return the first update of all parameters."""
    start, first = flat(model), None
    mode = "local" if mode == "GroupNorm" else mode
    with paceline.Worker(
        model, sgd(model), strategy="sync:allreduce", accumulate=window, batch_norm=mode
    ) as worker:
        for images, labels in worker.batches(batches):
            result = worker.step(nn.functional.cross_entropy(worker(images), labels))
            if result.window_ended and first is None:
                first = flat(model) - start
    assert first is not None
    return first


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def judge(model: nn.Module, test: Batch, off: float) -> Figures:
    model.eval()
    with torch.no_grad():
        outputs = model(test[0])
    loss = float(nn.functional.cross_entropy(outputs, test[1]))
    return Figures(
        off=off, loss=loss, accuracy=float((outputs.argmax(1) == test[1]).float().mean())
    )


def row(mode: str, window: int | None, seed: int, passes: int) -> Figures:
    """One training; ``window`` None: the large batch, in plain torch."""
    torch.manual_seed(seed)
    model = net((lambda size: nn.GroupNorm(4, size)) if mode == "GroupNorm" else nn.BatchNorm2d)
    digits = Digits(seed)
    for _ in range(WARM_UP_PASSES):  # freeze needs statistics to freeze
        plain_loop(model, digits.one_pass(UPDATE_SAMPLES), frozen=False)
    count = paceline.current_launch().world_size * (window or 1)
    size = UPDATE_SAMPLES // count
    large, small = [], []
    for _ in range(passes):
        joined = digits.one_pass(UPDATE_SAMPLES)
        large += joined
        small += [
            part for x, y in joined for part in zip(x.split(size), y.split(size), strict=True)
        ]
    twin = copy.deepcopy(model)
    expected = plain_loop(twin, large, frozen=mode == "freeze")
    if window is None:
        return judge(twin, digits.test, 0.0)
    first = workers(model, small, window, mode)
    return judge(model, digits.test, float((first - expected).norm() / expected.norm()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    launch = paceline.current_launch()
    lines = ["| mode | k | batch norm sees | first update off by | test loss | accuracy |"]
    lines.append("|---|---|---|---|---|---|")
    for mode in MODES:
        for window in (None, *WINDOWS):
            found = [row(mode, window, seed, args.passes) for seed in range(args.seeds)]
            size = UPDATE_SAMPLES // (launch.world_size * (window or 1))
            lines.append(
                _line(mode, window, found, seen=_seen(mode, window, size, launch.world_size))
            )
    if launch.rank == 0:
        print("\n".join(lines))


def _seen(mode: str, window: int | None, size: int, workers: int) -> str:
    if mode in ("freeze", "GroupNorm"):
        return "no batch"
    if window is None:
        return str(UPDATE_SAMPLES)
    return f"{workers} x {size}" if mode == "sync" else str(size)


def _line(mode: str, window: int | None, found: list[Figures], *, seen: str) -> str:
    off, loss, accuracy = (
        fmean(getattr(one, name) for one in found) for name in ("off", "loss", "accuracy")
    )
    k = "large batch" if window is None else str(window)
    return f"| {mode} | {k} | {seen} | {off:.1e} | {loss:.4f} | {100 * accuracy:.1f} % |"


if __name__ == "__main__":
    main()
