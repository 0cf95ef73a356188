"""Pulls as differences, over the loopback: what a worker on another host has, and when it is exact."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
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
from precision.ranks import Rank, run_ranks

WAIT_S = 20.0
DATA, INITIAL = batches(16), model()
WORD = "topk:0.05,warmup=4,pull=topk:0.05"
pytestmark = pytest.mark.usefixtures("one_thread")


class Trained:
    """A rank that has trained two passes, verifying every window against what the server says that this
    worker has; and what it had on its way."""

    def __init__(self, launch: Launch, strategy: str, word: str | None) -> None:
        self.received: list[int] = []
        self.norms: list[float | None] = []
        net = copy.deepcopy(INITIAL)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        rank = Rank(net, optimizer, launch, strategy=strategy, compress=word)
        rank.parts.moments.decided.listen(self._note)
        Verifying(rank.parts, rank._session)(1)
        for _ in range(2):
            for inputs, targets in rank.batches(DATA):
                rank.step(nn.functional.mse_loss(rank(inputs), targets))
        self.parameters = copied(net)
        with rank.parts.plane.latest():
            self.latest = copied(net)
        account: Any = rank.parts.plane.account
        self.said = "" if account is None else account.sentence(str(word))
        rank.close()

    def _note(self, outcome: Any) -> None:
        self.received.append(outcome.received_bytes)
        self.norms.append(outcome.norm)


def copied(net: nn.Module) -> list[torch.Tensor]:
    return copy.deepcopy([p.detach() for p in net.parameters()])


def train(places: Places, strategy: str, word: str | None, far: tuple[bool, ...]) -> list[Trained]:
    """Those that are ``far`` are on another host."""
    launches = [
        Launch(
            rank=rank, world_size=len(far), key=places.key,
            server=places.far if one else places.near,
        )
        for rank, one in enumerate(far)
    ]  # fmt: skip
    with ThreadPoolExecutor(len(far)) as pool:
        made = pool.map(lambda launch: Trained(launch, strategy, word), launches, timeout=WAIT_S)
        return list(made)


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
    near, far = train(places, strategy, f"topk:0.05,warmup=4,pull={pull}", (False, True))
    for shown in (far.parameters, near.latest, far.latest):
        assert same(shown, near.parameters)
    shapes = [(tuple(p.shape), 4) for p in near.parameters]
    method = compression(f"{pull},pull={pull}").pull
    assert far.received[-1] in (push_bytes(method, shapes), 0)
    assert set(near.received) == {4 * sum(p.numel() for p in near.parameters)}
    assert "pulls had" in far.said
    assert "pulls had" not in near.said


@pytest.mark.full
def test_topk_of_everything_both_ways_is_dense(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = train(places, "sync:server", "topk:1.0,warmup=0,pull=topk:1.0", (False, True))
    dense = run_ranks(2, lambda launch: Trained(launch, "sync:server", None), monkeypatch)
    assert same(far[1].parameters, dense[0].parameters)
    assert far[1].norms == dense[0].norms


def test_an_emulated_worker_computes_at_the_bits_of_one_that_is_far(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text("[workers]\ncount = 2\nstep_s = 0.001\n")

    def emulated(launch: Launch) -> Trained:
        return Trained(replace(launch, emulate=cluster), "sync:server", WORD)

    here = run_ranks(2, emulated, monkeypatch)
    there = train(places, "sync:server", WORD, (True, True))
    for one, other in zip(here, there, strict=True):
        assert same(one.parameters, other.parameters)
        assert one.norms == other.norms
        assert one.received[-20:] == other.received[-20:]
        assert "one host" not in one.said  # nothing is said of a wire that is not there
