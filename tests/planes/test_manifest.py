"""What is trained: in the optimizer's order, refused with the remedy, compared to the first difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from paceline.errors import UsageError
from paceline.worker.manifest import (
    Manifest,
    describe,
    first_difference,
    hyperparameters,
    in_models_order,
    refuse_for_group,
    refuse_for_server,
    trainable,
)
from paceline.worker.optimizer_state import dump_state, load_state


def model_of(width: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width), nn.Linear(width, 1))


def manifest_of(model: nn.Module, optimizer: torch.optim.Optimizer, **options: str) -> Manifest:
    made = describe(model, optimizer, trainable(model, optimizer), options)
    return Manifest.decode(made.encode())


def test_the_order_is_the_optimizers_and_names_are_the_models() -> None:
    model = model_of()
    groups = [{"params": [model[2].weight]}, {"params": [*model[0].parameters()], "lr": 0.5}]
    found = trainable(model, torch.optim.SGD(groups, lr=0.1))
    assert [(one.name, one.group) for one in found] == [
        ("2.weight", 0),
        ("0.weight", 1),
        ("0.bias", 1),
    ]


def test_the_models_order_goes_by_its_layers_whatever_the_optimizers() -> None:
    model = model_of()
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": weights}, {"params": others, "weight_decay": 0.0}]
    found = trainable(model, torch.optim.SGD(groups, lr=0.1, weight_decay=0.1))
    names = [found[place].name for place in in_models_order(model, found)]
    assert names == [name for name, _ in model.named_parameters()]


def test_frozen_parameters_are_left_out_and_tied_ones_come_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    found = trainable(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert [(one.name, one.index) for one in found] == [("0.weight", 0), ("1.bias", 2)]


def wrapped_in(name: str) -> nn.Module:
    kind = type(name, (nn.Module,), {})
    return nn.Sequential(nn.Linear(2, 2), kind())


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (wrapped_in("DistributedDataParallel"), "Delete the line"),
        (wrapped_in("FullyShardedDataParallel"), "Delete the line"),
    ],
)
def test_wrappers_are_refused_with_the_line_to_delete(model: nn.Module, remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        trainable(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_an_optimizer_of_another_model_is_refused() -> None:
    with pytest.raises(UsageError, match=r"not in the model"):
        trainable(model_of(), torch.optim.SGD(model_of().parameters(), lr=0.1))


def test_closures_are_refused() -> None:
    model = model_of()
    with pytest.raises(UsageError, match="closure"):
        trainable(model, torch.optim.LBFGS(model.parameters()))


def test_sparse_embeddings_are_refused_for_a_group() -> None:
    model = nn.Sequential(nn.Embedding(4, 2, sparse=True))
    found = trainable(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(UsageError, match="sparse=False"):
        refuse_for_group(model, found)


def test_a_foreign_optimizer_class_is_refused_on_the_server_only() -> None:
    class Mine(torch.optim.SGD):
        pass

    model = model_of()
    optimizer = Mine(model.parameters(), lr=0.1)
    found = trainable(model, optimizer)
    refuse_for_group(model, found)
    with pytest.raises(UsageError, match="sync:allreduce"):
        refuse_for_server(optimizer, found)


def _rebuilt(**changes: Any) -> Callable[[], Manifest]:
    def build() -> Manifest:
        model = model_of(changes.get("width", 3))
        if changes.get("double"):
            model.double()
        kind = changes.get("kind", torch.optim.SGD)
        optimizer = kind(model.parameters(), lr=changes.get("lr", 0.1))
        return manifest_of(model, optimizer, strategy=changes.get("strategy", "sync"))

    return build


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (_rebuilt(width=4), "the shape of 0.weight is (3, 2) against (4, 2)"),
        (_rebuilt(double=True), "the type of 0.weight is 'float32' against 'float64'"),
        (_rebuilt(kind=torch.optim.Adam), "the optimizer's class is 'SGD' against 'Adam'"),
        (_rebuilt(lr=0.2), "lr of optimizer group 0 is 0.1 against 0.2"),
        (_rebuilt(strategy="async"), "option strategy is 'sync' against 'async'"),
    ],
)
def test_the_first_difference_is_named(other: Callable[[], Manifest], said: str) -> None:
    assert first_difference(_rebuilt()(), other()) == said


def test_equal_manifests_do_not_differ() -> None:
    assert first_difference(_rebuilt()(), _rebuilt()()) is None


def test_a_missing_buffer_is_a_difference() -> None:
    model, bare = model_of(), nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1))
    mine = manifest_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = manifest_of(bare, torch.optim.SGD(bare.parameters(), lr=0.1))
    assert (
        first_difference(mine, theirs) == "the name of buffer 0 is '1.running_mean' against nothing"
    )


def test_things_kept_in_groups_that_are_no_numbers_do_not_travel() -> None:
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.5))
    optimizer.param_groups[0]["note"] = object()
    group = manifest_of(model, optimizer).optimizer.groups[0]
    assert group["lr"] == 0.5
    assert group["betas"] == [0.9, 0.999]
    assert "note" not in group


def test_state_goes_from_one_optimizer_to_another_and_leaves_rates_alone() -> None:
    ours, theirs = model_of(), model_of()
    ours[0].bias.requires_grad_(False)
    theirs[0].bias.requires_grad_(False)
    first = torch.optim.Adam(ours.parameters(), lr=0.1)
    second = torch.optim.Adam(theirs.parameters(), lr=0.7)
    assert dump_state(first, trainable(ours, first)) is None
    ours(torch.randn(4, 2)).sum().backward()
    first.step()
    state = dump_state(first, trainable(ours, first))
    assert state is not None
    load_state(second, trainable(theirs, second), state)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.requires_grad == bool(second.state.get(other))
        for key, value in first.state[mine].items():
            assert torch.equal(second.state[other][key], value)
    assert second.param_groups[0]["lr"] == 0.7


def test_a_numpy_learning_rate_is_a_plain_number() -> None:
    optimizer = torch.optim.SGD(model_of().parameters(), lr=np.float64(0.01))
    (group,) = hyperparameters(optimizer)
    assert type(group["lr"]) is float
