"""fp16 and gradients of 1e-8: what learns, what stands still (the table of docs/precision.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.launch.context import Launch
from precision.ranks import Rank, run_ranks

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import precision_story
from precision_story import WAYS, Ending, trained

PLANES = [(1, "sync"), (2, "sync:server"), (2, "sync:allreduce")]
LEARN = [way for way in WAYS if "no loss scale" not in way.name and "by hand" not in way.name]
STAND_STILL = [way for way in WAYS if way not in LEARN]


@pytest.fixture(autouse=True, scope="module")
def _short_and_alone() -> Iterator[None]:
    threads, epochs = torch.get_num_threads(), precision_story.EPOCHS
    torch.set_num_threads(1)
    precision_story.EPOCHS = 5
    yield
    torch.set_num_threads(threads)
    precision_story.EPOCHS = epochs


def endings(way: Any, size: int, strategy: str, monkeypatch: pytest.MonkeyPatch) -> list[Ending]:
    def train(launch: Launch) -> Ending:
        make: Callable[..., Rank] = lambda model, optimizer, **keywords: Rank(  # noqa: E731
            model, optimizer, launch, strategy=strategy, **keywords
        )
        return trained(way, make)

    return run_ranks(size, train, monkeypatch)


@pytest.mark.parametrize(("size", "strategy"), PLANES)
def test_with_a_loss_scale_and_float32_sums_fp16_learns_as_fp32(
    size: int, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, *others = (
        endings(way, size, strategy, monkeypatch)
        for way in LEARN
        if strategy == "sync:allreduce" or "reduce_dtype" not in way.keywords
    )
    assert reference[0].last < 0.3 * reference[0].first
    for ranks in others:
        assert len({ending.last for ending in ranks}) == 1
        assert ranks[0].last == pytest.approx(reference[0].last, rel=0.01)


@pytest.mark.parametrize("way", STAND_STILL, ids=lambda way: way.name)
def test_without_a_scale_it_stands_still(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (ending,) = endings(way, 1, "sync", monkeypatch)
    assert ending.last == pytest.approx(ending.first, rel=1e-4)
    assert ending.zeros > 0.99
