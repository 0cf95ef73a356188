"""Pulls as differences, over the loopback: what a worker on another host has, and when it is exact."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from compress.models import compression
from compress.trained import batches, model, same
from hosts.conftest import Places
from paceline.launch.context import Launch
from paceline.payloads import push_bytes
from paceline.worker.verifying import Verifying
from precision.ranks import Rank

WAIT_S = 20.0
pytestmark = pytest.mark.usefixtures("one_thread")


class Ended:
    """What one rank ended with, and had on its way."""

    def __init__(self) -> None:
        self.parameters: list[torch.Tensor] = []
        self.received: list[int] = []
        self.glances: list[list[torch.Tensor]] = []
        self.said = ""


def train(places: Places, strategy: str, word: str | None, far: tuple[bool, ...]) -> list[Ended]:
    """Two passes; every window is verified against what the server says this worker has."""
    initial, data = model(), batches(16)

    def on(rank: int) -> Ended:
        net, ended = copy.deepcopy(initial), Ended()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        address = places.far if far[rank] else places.near
        launch = Launch(rank=rank, world_size=len(far), server=address, key=places.key)
        worker = Rank(net, optimizer, launch, strategy=strategy, compress=word)
        worker.parts.moments.decided.listen(lambda one: ended.received.append(one.received_bytes))
        Verifying(worker.parts, worker._session)(1)
        for _ in range(2):
            for inputs, targets in worker.batches(data):
                worker.step(nn.functional.mse_loss(worker(inputs), targets))
        with worker.parts.plane.latest():
            ended.glances.append([p.detach().clone() for p in net.parameters()])
        ended.parameters = [p.detach().clone() for p in net.parameters()]
        account: Any = worker.parts.plane.account
        ended.said = account.sentence(word) if account is not None else ""
        worker.close()
        return ended

    with ThreadPoolExecutor(len(far)) as pool:
        return list(pool.map(on, range(len(far)), timeout=WAIT_S))


@pytest.mark.parametrize(
    ("strategy", "pull"),
    [("sync:server", "topk:0.05"), *[
        pytest.param(strategy, pull, marks=pytest.mark.full)
        for strategy in ("async", "backup:1", "ssp:1") for pull in ("topk:0.05", "int8", "sign")
    ]],
)  # fmt: skip
def test_who_is_far_has_what_the_server_says_and_at_the_end_everybody_the_same(
    places: Places, strategy: str, pull: str
) -> None:
    word = f"topk:0.05,warmup=4,pull={pull}"
    near, far = train(places, strategy, word, (False, True))
    assert same(near.parameters, far.parameters)
    for glance in (*near.glances, *far.glances):
        assert same(glance, near.parameters)
    shapes = [(tuple(p.shape), 4) for p in near.parameters]
    method = compression(word).of_pulls()
    assert method is not None
    assert far.received[-1] in (push_bytes(method.method, shapes), 0)
    assert set(near.received) == {4 * sum(p.numel() for p in near.parameters)}
    assert "pulls had" in far.said
    assert "pulls had" not in near.said


def test_topk_of_everything_both_ways_is_dense(places: Places) -> None:
    word = "topk:1.0,warmup=0,pull=topk:1.0"
    near, far = train(places, "sync:server", word, (False, True))
    assert same(near.parameters, far.parameters)
