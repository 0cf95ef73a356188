"""A checkpoint counts the samples of the version that it holds, also those that its writer has not heard of."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.launch.context import Launch
from paceline.worker.snapshot import read
from precision.ranks import Rank, run_ranks

BATCH, WAIT_S = 4, 20.0
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        (2, {"strategy": "async"}),
        pytest.param(4, {"strategy": "hybrid:async", "group_size": 2}, marks=pytest.mark.full),
    ],
)
def test_others_pushed_since_the_writer_did(
    workers: int, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 makes one step, waits until the last rank has made three, and saves."""
    others_are_on = threading.Event()
    saved = threading.Barrier(workers)

    def on(launch: Launch) -> float:
        net = torch.nn.Linear(3, 1)
        worker = Rank(net, torch.optim.SGD(net.parameters(), lr=0.01), launch, **options)
        first = launch.rank < workers // 2
        for step, inputs in enumerate(worker.batches([torch.ones(BATCH, 3)] * 10 * workers)):
            worker.step(worker(inputs).mean())
            if first and step == 0:
                assert others_are_on.wait(WAIT_S)
            if launch.rank == workers - 1 and step == 2:
                others_are_on.set()
            if (first and step == 0) or (not first and step == 2):
                saved.wait(WAIT_S)
                if launch.rank == 0:
                    worker._loop.save(tmp_path, 1)
                saved.wait(WAIT_S)
        worker.close()
        return worker._loop.samples()

    samples = run_ranks(workers, on, monkeypatch)
    body = read(tmp_path).body
    assert body["inside"]
    assert body["progress"] == 2 * workers
    assert body["samples"] == body["progress"] * BATCH
    assert samples == [10 * workers * BATCH] * workers
