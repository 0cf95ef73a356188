"""Workers that compress on the collective plane; ranks are threads, sums and gathers go over a board."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from compress.models import compression
from compress.trained import WORDS, Mine, batches, same, train
from paceline.errors import UsageError
from paceline.gradients.codecs.joining import Joiner
from paceline.payloads import parcel_bytes

pytestmark = pytest.mark.usefixtures("one_thread")
ALLREDUCE: dict[str, Any] = {"strategy": "sync:allreduce"}
BALLOT_BYTES = 8 * (2 + 3 * 2 + 4)


@pytest.mark.parametrize("word", WORDS)
def test_it_trains_and_ranks_stay_equal(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = train(batches(40), monkeypatch, compress=word, **ALLREDUCE)
    assert same(trained[0].parameters, trained[1].parameters)
    method = compression(word).method
    sizes = [parcel_bytes(method, tuple(p.shape), 4) for p in trained[0].parameters]
    for one in trained:
        assert sum(one.losses[-5:]) < 0.9 * sum(one.losses[:5])
        assert one.sent[-1] == pytest.approx(BALLOT_BYTES + sum(sizes), abs=16)  # padding
        assert one.own["residuals"].keys() == {"0.weight", "2.weight"}
    assert not torch.equal(*(one.own["residuals"]["0.weight"] for one in trained))


@pytest.mark.full
@pytest.mark.parametrize("word", ["topk:0.05,warmup=0", "int8", "sign", "randomk:0.25,warmup=0"])
def test_both_planes_send_the_same(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are selected and rounded alike; sums are of other numbers by rounding alone."""
    collective, server = (
        train(batches(12), monkeypatch, compress=word, strategy=strategy)
        for strategy in ("sync:allreduce", "sync:server")
    )
    for one, other in zip(collective, server, strict=True):
        for a, b in zip(one.parameters, other.parameters, strict=True):
            assert torch.allclose(a, b, atol=1e-3)


@pytest.mark.parametrize(
    "word", ["topk:0.05,warmup=0", "powersgd:2,warmup=0", "randomk:0.25,warmup=0"]
)
def test_an_infinity_on_one_rank_leaves_no_trace(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = batches(16, spoiled=7)
    spoiled = train(data, monkeypatch, compress=word, **ALLREDUCE)
    without = train(data[:6] + data[8:], monkeypatch, compress=word, **ALLREDUCE)
    for one, other in zip(spoiled, without, strict=True):
        assert same(one.parameters, other.parameters)
        for key in ("residuals", "starts"):
            assert one.own[key].keys() == other.own[key].keys()
            for name, kept in one.own[key].items():
                assert torch.equal(kept, other.own[key][name])


def test_a_correction_that_overflows_is_skipped_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank's residual is too large for float32: nobody steps, and nobody keeps anything of it."""
    whole = Joiner.join

    def spoiling(joiner: Joiner, window: Any) -> Any:
        if window.moment.turn == 3 and not getattr(joiner, "spoiled", False):
            joiner.spoiled = True  # type: ignore[attr-defined]
            joiner._gradients[0].fill_(3e38)
            joiner._feedback._kept[0].fill_(3e38)  # type: ignore[attr-defined]
        return whole(joiner, window)

    monkeypatch.setattr(Joiner, "join", spoiling)
    trained = train(batches(16), monkeypatch, compress="topk:0.05,warmup=0", **ALLREDUCE)
    assert same(trained[0].parameters, trained[1].parameters)
    assert trained[0].applied == trained[1].applied
    assert trained[0].applied.count(False) >= 1
    assert all(bool(torch.isfinite(p).all()) for p in trained[0].parameters)


def test_an_object_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathered or summed, of two ranks: the same bits. What one update does not send the next one does."""
    gathered, summed = (
        train(batches(40), monkeypatch, compress=mine, **ALLREDUCE)
        for mine in (Mine(), Mine(summable=True))
    )
    for one, other in zip(gathered, summed, strict=True):
        assert same(one.parameters, other.parameters)
        assert same(one.parameters, gathered[0].parameters)
        assert sum(one.losses[-5:]) < 0.9 * sum(one.losses[:5])


def test_the_codec_of_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "compression.md").read_text()
    code = text[
        text.index("class Halves") : text.index(
            "\n\nworker = paceline.Worker(model, optimizer, strategy="
        )
    ]
    known: dict[str, Any] = {"torch": torch, "math": math}
    exec(code, known)
    trained = train(batches(40), monkeypatch, compress=known["Halves"](), **ALLREDUCE)
    assert same(trained[0].parameters, trained[1].parameters)
    assert sum(trained[0].losses[-5:]) < 0.9 * sum(trained[0].losses[:5])
    assert trained[0].sent[-1] == BALLOT_BYTES + 2 * (40 * 50 + 50 * 30) + 4 * (50 + 30)


def test_it_cannot_be_had_with_a_narrow_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="compress='sign' and reduce_dtype"):
        train(batches(2), monkeypatch, compress="sign", reduce_dtype="bf16", **ALLREDUCE)


def test_sums_of_residuals_and_what_was_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a linear model's one update: lr x (sum of gradients - sum of residuals) is what moved."""
    data = batches(2)
    dense = train(data, monkeypatch, momentum=0.0, **ALLREDUCE)
    packed = train(data, monkeypatch, momentum=0.0, compress="sign", **ALLREDUCE)
    residual = sum(one.own["residuals"]["2.weight"] for one in packed)
    weight = sum(len(inputs) for inputs, _ in data)
    moved = dense[0].parameters[2] - packed[0].parameters[2]
    assert torch.allclose(moved, -0.05 * residual / weight, atol=1e-6)
    assert math.isfinite(float(moved.sum()))
