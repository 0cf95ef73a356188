"""What a group pushes, compressed: the leader alone encodes, and keeps what was withheld for all of them."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compress.test_resumed import train as resumable
from compress.trained import batches, model, same, train
from hosts.conftest import Places
from paceline.launch.context import Launch
from precision.ranks import Rank, run_ranks

TWO_GROUPS: dict[str, Any] = {"workers": 4, "strategy": "hybrid:ssp:0", "group_size": 2}
LR = 0.5
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", autouse=True)
def gloo() -> None:
    """torch's first store opens a pipe that stays with the process."""
    torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.mark.full
def test_topk_of_everything_is_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = train(batches(12), monkeypatch, **TWO_GROUPS)
    monkeypatch.setattr("paceline.gradients.codecs.choosing.is_whole", lambda *_: False)
    packed = train(batches(12), monkeypatch, compress="topk:1.0,warmup=0", **TWO_GROUPS)
    assert packed[0].sent != dense[0].sent  # it did travel encoded
    for one, other in zip(dense, packed, strict=True):
        assert same(one.parameters, other.parameters)


class Line(nn.Module):
    """Its gradient is its input, wherever it is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(40, 50))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (self.weight * inputs.mean(0)).sum()


def test_what_was_withheld_is_all_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """sum(sent) + residual == sum(gradients), over both groups; members keep nothing."""
    generator = torch.Generator().manual_seed(3)
    data = [torch.randn(4, 40, 50, generator=generator) for _ in range(32)]

    def on(launch: Launch) -> tuple[torch.Tensor, dict[str, Any]]:
        net = Line()
        optimizer = torch.optim.SGD(net.parameters(), lr=LR)
        options = {"strategy": "hybrid:ssp:0", "group_size": 2, "compress": "topk:0.02,warmup=2"}
        worker = Rank(net, optimizer, launch, **options)
        for inputs in worker.batches(data):
            worker.step(worker(inputs))
        own = worker.parts.plane.own_state()
        worker.close()
        return net.weight.detach().clone(), own

    ends = run_ranks(4, on, monkeypatch)
    withheld = sum(own["residuals"]["weight"] for _, own in ends[::2])
    assert not any(own["residuals"] for _, own in ends[1::2])
    assert float(withheld.abs().max()) > 0.1
    whole = -LR * sum(one.mean(0) for one in data) / 4  # a round is the mean of four batches
    weight = ends[0][0] - LR * withheld / 16  # of 16 samples
    assert torch.allclose(weight, whole, atol=1e-5)


@pytest.mark.full
def test_a_resumed_group_goes_on_with_what_any_of_it_withheld(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four workers that withheld one by one go on as two groups."""
    initial = model()

    def run(path: Path, resume: bool, strategy: str, passes: int) -> list[dict[str, Any]]:
        def on(launch: Launch) -> dict[str, Any]:
            return resumable(
                launch, copy.deepcopy(initial), path, passes=passes, resume=resume,
                word="sign", strategy=strategy,
            )  # fmt: skip

        return run_ranks(4, on, monkeypatch)

    before = run(tmp_path, False, "sync:server", 1)
    monkeypatch.setattr("paceline.worker.circle.groups_by", lambda *_: ((0, 1), (2, 3)))
    after = run(tmp_path, True, "hybrid:ssp:0", 1)  # that pass is over: nothing is pushed
    for name in ("0.weight", "2.weight"):
        for leader in (0, 2):
            kept = sum(before[leader + i]["own"]["residuals"][name] for i in range(2))
            assert torch.allclose(after[leader]["own"]["residuals"][name], kept, atol=1e-6)
    assert not after[1]["own"]["residuals"]


def test_members_elsewhere_see_what_their_leader_pulled_as_differences(places: Places) -> None:
    """And at a pass's end, when it has the version whole, so have they."""
    initial, data = model(), batches(24)

    def on(rank: int) -> tuple[list[torch.Tensor], int]:
        net = copy.deepcopy(initial)
        launch = Launch(
            rank=rank, world_size=4, key=places.key, server=places.far if rank > 1 else places.near
        )
        worker = Rank(
            net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), launch,
            strategy="hybrid:async", group_size=2, compress="topk:0.05,warmup=2,pull=topk:0.05",
        )  # fmt: skip
        received: list[int] = []
        worker.parts.moments.decided.listen(lambda one: received.append(one.received_bytes))
        for inputs, targets in worker.batches(data):
            worker.step(nn.functional.mse_loss(worker(inputs), targets))
        ended = [p.detach().clone() for p in net.parameters()]
        worker.close()
        return ended, min(received, default=0)

    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(on, range(4), timeout=60.0))
    assert all(same(end, ends[0][0]) for end, _ in ends)
    assert ends[2][1] < 0.5 * ends[0][1], "the leader elsewhere received differences"
