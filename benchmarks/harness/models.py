"""The models that are trained, with their data and optimizers: the same code on both sides."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 8
SAMPLES = 512
"""A multiple of BATCH x N for every N used, so that no epoch ends with a short batch."""
TOKENS, VOCABULARY = 64, 256
SLEEP_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Task:
    """Something to train. ``lr``: AdamW's, or SGD's as it acts in the long run, momentum included.

    Small enough for old gradients with momentum, and for losses that stay comparable.
    """

    build: Callable[[], nn.Module]
    data: Callable[[], TensorDataset]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    lr: float
    adamw: bool = False
    batch: int = BATCH

    def loader(self, sampler: Any = None) -> DataLoader[Any]:
        """The data in order, as an ordinary script would read it."""
        return DataLoader(self.data(), batch_size=self.batch, sampler=sampler)

    def optimizer(
        self, model: nn.Module, momentum: float, share: float = 1.0
    ) -> torch.optim.Optimizer:
        """``share``: part of the learning rate, where every worker's step counts in full."""
        if self.adamw:
            return torch.optim.AdamW(model.parameters(), lr=self.lr * share)
        lr = self.lr * share * (1 - momentum)
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)


def again_and_again(loader: DataLoader[Any], batches: int) -> Iterator[Any]:
    """``batches`` batches, from the loader's beginning and over again."""
    return islice(chain.from_iterable(repeat(loader)), batches)


def fixed_loss(task: Task, model: nn.Module) -> float:
    """The loss of the first 64 samples, to compare trainings with."""
    inputs, targets = task.data()[:64]
    with torch.no_grad():
        return float(task.loss(model(inputs), targets))


def _stack(count: int, width: int) -> nn.Module:
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(count)])


def _vectors(width: int) -> TensorDataset:
    """Inputs and targets with a common offset, which a few steps learn."""
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, width, generator=draw)
    return TensorDataset(inputs, 1 + 0.1 * torch.randn(SAMPLES, width, generator=draw))


class _Transformer(nn.Module):
    """Six encoder layers, d = 256, causal: predicts the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(256, VOCABULARY)
        # No buffer: DDP would broadcast it in every forward, at its own cost.
        self.mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.embedding(tokens), mask=self.mask, is_causal=True)
        return self.head(hidden)  # type: ignore[no-any-return]


def _texts() -> TensorDataset:
    """Texts that count on from a random token in steps of one: soon learnt."""
    draw = torch.Generator().manual_seed(1)
    starts = torch.randint(VOCABULARY, (SAMPLES, 1), generator=draw)
    tokens = (starts + torch.arange(TOKENS + 1)) % VOCABULARY
    return TensorDataset(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def _next_token(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())


class _Nap(torch.autograd.Function):
    """A layer's time without its arithmetic; the gradients it returns were made before.

    Autograd copies them into place, which is the one memory pass that a real backward would make
    anyway to write them. All layers share one set: it is in the cache, as fresh gradients are.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any, bias: Any, ready: Any, nap_s: float) -> Any:
        ctx.ready, ctx.nap_s = ready, nap_s
        time.sleep(nap_s)
        return hidden.view_as(hidden)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        time.sleep(2 * ctx.nap_s)
        return grads[0], *ctx.ready, None, None


class _Asleep(nn.Module):
    """Model A's parameters; forward and backward sleep SLEEP_S in all, a third of it in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = _stack(25, 1000)
        self.ready = (torch.full((1000, 1000), 1e-6), torch.full((1000,), 1e-6))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        nap_s = SLEEP_S / 3 / len(self.layers)  # type: ignore[arg-type]
        for layer in self.layers:  # type: ignore[attr-defined]
            hidden = _Nap.apply(hidden, layer.weight, layer.bias, self.ready, nap_s)
        return hidden


TASKS: dict[str, Task] = {
    "A": Task(
        build=lambda: _stack(25, 1000),
        data=lambda: _vectors(1000),
        loss=nn.functional.mse_loss,
        lr=0.1,
    ),
    "B": Task(
        build=lambda: _stack(8, 64), data=lambda: _vectors(64), loss=nn.functional.mse_loss, lr=0.1
    ),
    "C": Task(build=_Transformer, data=_texts, loss=_next_token, lr=3e-4, adamw=True),
    "asleep": Task(
        build=_Asleep, data=lambda: _vectors(1000), loss=nn.functional.mse_loss, lr=1e-3
    ),
    "5 ms": Task(
        build=lambda: _stack(8, 384),
        data=lambda: _vectors(384),
        loss=nn.functional.mse_loss,
        lr=1e-3,
        batch=32,
    ),
}
