"""Workers that compress, over a real server; ranks are threads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from compress.models import compression
from compress.trained import WORDS, Mine, batches, same, train
from paceline.errors import UsageError
from paceline.payloads import push_bytes
from paceline.worker import server_plane, shared_gradients

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("keywords", [{}, {"accumulate": 2, "clip_norm": 0.5}])
def test_topk_of_everything_is_dense(keywords: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = train(batches(12), monkeypatch, **keywords)
    monkeypatch.setattr("paceline.gradients.codecs.choosing.is_whole", lambda *_: False)
    packed = train(batches(12), monkeypatch, compress="topk:1.0,warmup=0", **keywords)
    assert packed[0].sent != dense[0].sent  # it did travel encoded
    for one, other in zip(dense, packed, strict=True):
        assert same(one.parameters, other.parameters)


@pytest.mark.parametrize("word", WORDS)
def test_it_trains_and_sends_what_the_formula_says(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = train(batches(40), monkeypatch, compress=word)
    assert same(trained[0].parameters, trained[1].parameters)
    for one in trained:
        assert sum(one.losses[-5:]) < 0.9 * sum(one.losses[:5])
        shapes = [(tuple(p.shape), 4) for p in one.parameters]
        assert one.sent[-1] == push_bytes(compression(word).method, shapes)
    residuals = [one.own["residuals"] for one in trained]
    assert residuals[0].keys() == {"0.weight", "2.weight"}
    assert not torch.equal(residuals[0]["0.weight"], residuals[1]["0.weight"])


@pytest.mark.parametrize("word", ["topk:0.05,warmup=0", "powersgd:2,warmup=0", "sign"])
def test_an_infinity_on_one_rank_leaves_no_trace(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round with it might as well not have been: not a bit differs, residuals included."""
    data = batches(16, spoiled=7)
    spoiled = train(data, monkeypatch, compress=word)
    without = train(data[:6] + data[8:], monkeypatch, compress=word)
    for one, other in zip(spoiled, without, strict=True):
        assert same(one.parameters, other.parameters)
        for name, residual in one.own["residuals"].items():
            assert torch.equal(residual, other.own["residuals"][name])


@pytest.mark.full
def test_the_loss_scale_leaves_no_trace_in_residuals(monkeypatch: pytest.MonkeyPatch) -> None:
    """bf16's gradients are the same bits times a power of two: so are residuals, without it."""
    plain, scaled = (
        train(
            batches(12),
            monkeypatch,
            compress="topk:0.05,warmup=0",
            precision="fp16",
            loss_scale=scale,
        )
        for scale in (2.0**4, 2.0**9)
    )
    for one, other in zip(plain, scaled, strict=True):
        for name, residual in one.own["residuals"].items():
            assert torch.allclose(residual, other.own["residuals"][name], rtol=0.02, atol=2e-3)


def test_bucket_size_changes_no_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    for size in (2**10, 2**22):
        monkeypatch.setattr(shared_gradients, "BUCKET_BYTES", size)
        monkeypatch.setattr(server_plane, "BUCKET_BYTES", size)
        ends.append(
            train(batches(12), monkeypatch, compress="topk:0.05,warmup=0")[0].own["residuals"]
        )
    for name, residual in ends[0].items():
        assert torch.equal(residual, ends[1][name])


@pytest.mark.parametrize(
    "strategy",
    ["ssp:1", *[pytest.param(one, marks=pytest.mark.full) for one in ("async", "backup:1")]],
)
def test_other_strategies_compress_too(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = train(batches(40), monkeypatch, strategy=strategy, compress="topk:0.05,warmup=4")
    losses = [loss for one in trained for loss in one.losses]
    assert all(map(math.isfinite, losses))
    assert any(one.own["residuals"] for one in trained)


def test_alone_nothing_is_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = batches(6)
    one, other = train(data, monkeypatch, 1, compress="sign"), train(data, monkeypatch, 1)
    assert same(one[0].parameters, other[0].parameters)


def test_the_server_has_no_code_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="Mine and sync:server cannot work together"):
        train(batches(2), monkeypatch, compress=Mine())


def test_an_object_without_the_methods_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lacks encode, decode"):
        compression(tmp_path)  # type: ignore[arg-type]
