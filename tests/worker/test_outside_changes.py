"""What a script may not change beside the loop, because a group could not follow it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from paceline.errors import MismatchError, UsageError
from paceline.strategies import Sync
from paceline.worker.manifest import trainable
from paceline.worker.outside import OutsideChanges, refuse_different_groups
from paceline.worker.training import Training


def watched(plane: str) -> tuple[nn.Module, torch.optim.Optimizer, OutsideChanges]:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    model[1].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    training = Training(
        model=model,
        optimizer=optimizer,
        trainables=trainable(model, optimizer),
        strategy=Sync(),
    )
    return model, optimizer, OutsideChanges(training, plane)


@pytest.mark.parametrize("plane", ["server", "allreduce"])
def test_a_parameter_unfrozen_later_is_an_error_that_names_it(plane: str) -> None:
    model, _, outside = watched(plane)
    outside.check()
    model[1].bias.requires_grad_(True)
    with pytest.raises(UsageError, match=r"1\.bias was unfrozen"):
        outside.check()


def test_a_write_to_a_parameter_is_an_error_on_the_server_plane() -> None:
    model, _, outside = watched("server")
    with torch.no_grad():
        model[0].weight.clamp_(-0.01, 0.01)
    with pytest.raises(UsageError, match=r"0\.weight was changed outside"):
        outside.check()
    outside.note()
    outside.check()
    model.load_state_dict({name: torch.zeros_like(t) for name, t in model.state_dict().items()})
    with pytest.raises(UsageError, match="sync:allreduce"):
        outside.check()


def test_the_same_write_on_every_rank_is_fine_under_all_reduce_and_alone() -> None:
    for plane in ("allreduce", "local"):
        model, _, outside = watched(plane)
        with torch.no_grad():
            model[0].weight.clamp_(-0.01, 0.01)
        outside.check()


def test_another_optimizer_state_is_refused_on_the_server_plane_until_the_watch_ends() -> None:
    _, optimizer, outside = watched("server")
    state = optimizer.state_dict()
    with pytest.raises(UsageError, match="Load it before Worker"):
        optimizer.load_state_dict(state)
    outside.remove()
    optimizer.load_state_dict(state)


def test_hyper_parameters_that_differ_between_ranks_are_named() -> None:
    def fact(rank: int, lr: float) -> dict[str, Any]:
        return {"rank": rank, "groups": [{"lr": 0.1}, {"lr": lr, "momentum": 0.9}]}

    refuse_different_groups([fact(0, 0.2), fact(1, 0.2)])
    with pytest.raises(MismatchError, match=r"lr of optimizer group 1 is 0\.2 on rank 0 and 0\.02"):
        refuse_different_groups([fact(0, 0.2), fact(1, 0.02)])
