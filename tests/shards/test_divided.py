"""Parameters divided among shards: every bit is that of one shard that has them all."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from hosts.test_remote_plane import end, together
from paceline.transport import messages
from server.stand_in import StandIn
from shards.divided_stand_in import crew

VALUES = [
    torch.arange(6.0).reshape(2, 3),
    torch.ones(40),
    torch.zeros(5, 4),
    torch.full((33,), 0.5),
]


def opened(run: Any, far: Sequence[bool], strategy: str, **options: Any) -> list[StandIn]:
    if len(run.shards):
        return crew(run, far, VALUES, strategy, together, **options)
    from hosts.remote_stand_in import RemoteStandIn

    workers = [
        RemoteStandIn(run.far, rank, len(far), key=run.key)
        if one
        else StandIn(run.near, rank, len(far))
        for rank, one in enumerate(far)
    ]
    together([lambda w=w: w.ask(w.opening(VALUES, strategy, **options)) for w in workers])
    return workers


def gradient(rank: int, step: int, scale: float) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    found = [scale * torch.randn(value.shape, generator=generator) for value in VALUES]
    return [None if place == step % 4 and step > 2 else one for place, one in enumerate(found)]


def windowed(worker: StandIn, gradients: list[torch.Tensor | None]) -> Any:
    worker.ask(messages.Ready())
    return worker.push(gradients)


def looked_at(worker: Any, cut: messages.CutTaken) -> list[torch.Tensor]:
    """The version that ``cut`` lends, beside the window's."""
    if not hasattr(worker, "divided"):
        return [one.clone() for one in worker.parameters]
    with worker.divided.showing(cut.parameters_fd):
        return [one.data.clone() for one in worker.shown]


def trained(
    start: Callable[[int], Any], shards: int, far: Sequence[bool], strategy: str,
    scales: Sequence[float], **options: Any,
) -> tuple[list[Any], list[torch.Tensor], dict[str, Any]]:  # fmt: skip
    """Norms, the parameters, and the optimizer's state after one step for each of ``scales``."""
    norms = []
    with start(shards) as run:
        workers = opened(run, far, strategy, **options)
        joint = strategy == "sync:server"
        together([lambda w=w: w.open_pass(len(scales) * len(far)) for w in workers])
        for step, scale in enumerate(scales):
            calls = [
                partial(windowed, worker, gradient(worker.rank, step, scale)) for worker in workers
            ]
            said = together(calls) if joint else [call() for call in calls]
            norms += [(one.applied, one.norm) for one in said]
        cut = workers[0].ask(messages.TakeCut())
        state = workers[0].ask(messages.Fetch()).state
        assert cut.state == state
        shown = looked_at(workers[0], cut)
        together([lambda w=w: w.ask(messages.Ready()) for w in workers])  # the pass is over
        ends = [[one.clone() for one in worker.parameters] for worker in workers]
        end(workers)
    for other in (shown, *ends):
        assert all(map(torch.equal, other, ends[0]))
    return norms, ends[0], torch.load(io.BytesIO(state), weights_only=True)


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"strategy": "sync:server", "optimizer": ("SGD", {"lr": 0.1, "momentum": 0.9})},
    "clipped": {
        "strategy": "sync:server", "optimizer": ("Adam", {"lr": 0.01}), "clip_norm": 2.0,
    },
    "a relative limit": {
        "strategy": "sync:server", "optimizer": ("SGD", {"lr": 0.1}), "limit": [0.0, 0.0],
    },
    "per push": {"strategy": "async:sum", "optimizer": ("AdamW", {"lr": 0.01}), "clip_norm": 3.0},
}  # fmt: skip


QUICK = "clipped"  # tests/shards/test_together.py says quickly what the others would


@pytest.mark.parametrize(
    "setting",
    [pytest.param(one, marks=[] if one == QUICK else pytest.mark.full) for one in SETTINGS],
)
def test_several_shards_have_the_bits_of_one(start: Callable[[int], Any], setting: str) -> None:
    scales = [1.0, 0.1, 3.0, 1.0, 0.5, 1.0, 9.0, 0.2, 1.0]
    far = (False, True)
    runs = [trained(start, shards, far, scales=scales, **SETTINGS[setting]) for shards in (1, 2, 3)]
    one = runs[0]
    for other in runs[1:]:
        assert other[0] == one[0]
        assert all(map(torch.equal, other[1], one[1]))
        assert other[2]["param_groups"] == one[2]["param_groups"]
        assert other[2]["state"].keys() == one[2]["state"].keys()
        for place, state in one[2]["state"].items():
            for key, value in state.items():
                assert torch.equal(
                    torch.as_tensor(other[2]["state"][place][key]), torch.as_tensor(value)
                )
