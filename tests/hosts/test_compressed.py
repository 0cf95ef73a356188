"""Compressed pushes between hosts: the bits of one host, and a push is no longer than its parcel."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from compress.trained import batches, model, same, train
from hosts.conftest import Places
from paceline.launch.context import Launch
from precision.ranks import Rank

WAIT_S = 20.0
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("word", ["topk:0.05,warmup=4", "powersgd:2,warmup=2"])
def test_wherever_workers_are_the_bits_are_the_same(
    places: Places, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    initial, data = model(), batches(12)

    def far(rank: int) -> list[torch.Tensor]:
        net = copy.deepcopy(initial)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        launch = Launch(rank=rank, world_size=2, server=places.far, key=places.key)
        worker = Rank(net, optimizer, launch, strategy="sync:server", compress=word)
        sent: list[int] = []
        worker.parts.moments.decided.listen(lambda outcome: sent.append(outcome.sent_bytes))
        for inputs, targets in worker.batches(data):
            worker.step(nn.functional.mse_loss(worker(inputs), targets))
        assert sent[-1] < 0.5 * sum(4 * p.numel() for p in net.parameters())
        ended = [p.detach().clone() for p in net.parameters()]
        worker.close()
        return ended

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(far, range(2), timeout=WAIT_S))
    near = train(data, monkeypatch, compress=word)
    assert same(ends[0], ends[1])
    assert same(ends[0], near[0].parameters)
