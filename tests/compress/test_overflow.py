"""fp16 with compression: a gradient that overflows on one rank, under the loss scale, leaves no trace."""

from __future__ import annotations

import pytest
import torch

from compress.trained import QUICK, batches, same, train

pytestmark = pytest.mark.usefixtures("one_thread")
OTHERS = (QUICK[1], "randomk:0.25,warmup=0", "int8", "sign")
ALL = [QUICK[0], *[pytest.param(word, marks=pytest.mark.full) for word in OTHERS]]


@pytest.mark.parametrize("strategy", ["sync:allreduce", "sync:server"])
@pytest.mark.parametrize("word", ALL)
def test_it_is_as_if_the_round_had_not_been(
    word: str, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a constant scale: not a bit differs, residuals included."""
    spoiled = batches(24)
    inputs, targets = spoiled[9]
    spoiled[9] = (inputs, targets * 1e6)  # rank 1's in update 4; finite in float32
    one, other = (
        train(
            data, monkeypatch, strategy=strategy, compress=word, precision="fp16", loss_scale=1024.0
        )
        for data in (spoiled, spoiled[:8] + spoiled[10:])
    )
    assert one[0].applied.count(False) == one[1].applied.count(False) == 1
    assert all(other[0].applied)
    for mine, theirs in zip(one, other, strict=True):
        assert same(mine.parameters, theirs.parameters)
        assert mine.own["residuals"].keys() == theirs.own["residuals"].keys()
        for name, kept in mine.own["residuals"].items():
            assert torch.equal(kept, theirs.own["residuals"][name])
