"""A run that goes on from its checkpoint has the bits of one that was not interrupted, residuals included."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compress.trained import batches, model, same
from paceline.launch.context import Launch
from paceline.worker import resuming
from paceline.worker.assembly import assemble
from paceline.worker.options import Runtime, options_from
from paceline.worker.planning import Demand
from paceline.worker.snapshot import read
from precision.ranks import DEFAULTS, run_ranks

pytestmark = pytest.mark.usefixtures("one_thread")


def train(
    launch: Launch,
    initial: nn.Module,
    path: Path,
    *,
    passes: int,
    resume: bool,
    word: str | None,
    strategy: str,
) -> dict[str, Any]:
    """Passes over the data, a checkpoint at the end of them; ``resume``: from that of an earlier run."""
    net = copy.deepcopy(initial)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    keywords = {**DEFAULTS, "runtime": Runtime(), "strategy": strategy, "compress": word}
    options = options_from(keywords, {})
    checkpoint = read(path) if resume else None
    beginning = resuming.beginning_from(checkpoint, net, optimizer, options, launch)
    parts, _ = assemble(net, optimizer, options, launch, beginning=beginning)
    loop = resuming.loop_from(checkpoint, parts, catch_up=True)
    for _ in range(passes):
        for inputs, targets in loop.run(Demand(loader=batches(8), steps=None, split=True)):
            loop.step(nn.functional.mse_loss(net(inputs), targets), None)
    loop.save(path, 1)
    own = parts.plane.own_state()
    loop.settle()
    parts.guards.remove()
    parts.outside.remove()
    parts.plane.close("finished")
    parts.journal.close(reason="finished", version=0, peak_bytes=0, digest="")
    return {"parameters": [p.detach().clone() for p in net.parameters()], "own": own}


@pytest.mark.parametrize(
    ("strategy", "word"),
    [
        ("sync:server", "topk:0.05,warmup=6"),
        pytest.param("sync:server", "powersgd:2,warmup=0", marks=pytest.mark.full),
        ("sync:allreduce", "powersgd:2,warmup=6"),
    ],
)  # fmt: skip
def test_bits_go_on(
    strategy: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    initial, kinds = model(), {"word": word, "strategy": strategy}

    def run(name: str, passes: int, resume: bool, workers: int = 2) -> list[dict[str, Any]]:
        return run_ranks(
            workers,
            lambda launch: train(
                launch, initial, tmp_path / name, passes=passes, resume=resume, **kinds
            ),
            monkeypatch,
        )

    whole = run("whole", 2, False)
    run("halves", 1, False)
    halves = run("halves", 2, True)  # the first pass is caught up with
    for one, other in zip(whole, halves, strict=True):
        assert same(one["parameters"], other["parameters"])
        for key in ("residuals", "starts"):
            assert one["own"][key].keys() == other["own"][key].keys()
            for name, kept in one["own"][key].items():
                assert torch.equal(kept, other["own"][key][name])


def test_residuals_are_shared_out_among_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    initial = model()
    kinds: dict[str, Any] = {"word": "sign", "strategy": "sync:server"}
    three = run_ranks(
        3,
        lambda launch: train(launch, initial, tmp_path, passes=1, resume=False, **kinds),
        monkeypatch,
    )
    checkpoint = read(tmp_path)
    shares = [checkpoint.compressed(rank, 2)["residuals"] for rank in range(2)]
    for name in ("0.weight", "2.weight"):
        before = sum(one["own"]["residuals"][name] for one in three)
        assert torch.allclose(shares[0][name] + shares[1][name], before, atol=1e-6)
        assert torch.equal(shares[1][name], three[1]["own"]["residuals"][name])


@pytest.mark.parametrize(
    ("workers", "word", "why"),
    [
        (1, "sign", "with one worker nothing is exchanged"),
        pytest.param(2, None, "compress is not given", marks=pytest.mark.full),
        pytest.param(2, "sign,feedback=off", "feedback=off", marks=pytest.mark.full),
        pytest.param(2, "sign", "", marks=pytest.mark.full),
    ],
)
def test_residuals_that_nobody_goes_on_with_are_not_dropped_in_silence(
    workers: int, word: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    initial = model()

    def run(count: int, word: Any, resume: bool) -> None:
        run_ranks(
            count,
            lambda launch: train(
                launch, initial, tmp_path, passes=1, resume=resume, word=word,
                strategy="sync:server",
            ),
            monkeypatch,
        )  # fmt: skip

    run(2, "sign", False)
    run(workers, word, True)
    said = capsys.readouterr().err
    assert said.count("is dropped: ") == bool(why)
    assert f"is dropped: {why}" in said or not why
