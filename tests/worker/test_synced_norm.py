"""Synchronised batch norm is batch norm of one process over all ranks' samples, to 1e-10 in float64."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from paceline.worker.synced_norm import SyncedNorms, pool
from worker.table import Table, at_once

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SHAPES = {1: (5,), 2: (3, 4), 3: (2, 3, 2)}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
Build = Callable[[], nn.Module]


def norms_in(model: nn.Module) -> list[Any]:
    return [one for one in model.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]


def net(dims: int = 0, *, channels: int = 3, **options: Any) -> nn.Module:
    """Two batch norms with something between them that is not linear."""
    torch.manual_seed(3)
    kind = NORMS.get(dims, nn.BatchNorm1d)
    model = nn.Sequential(kind(channels, **options), nn.Tanh(), kind(channels, **options))
    for norm in norms_in(model):
        if norm.affine:
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
    return model.double()


def batches(
    sizes: Sequence[int], dims: int = 0, *, channels: int = 3, offset: float = 0.0
) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    shape = (channels, *SHAPES.get(dims, ()))
    made = [torch.randn(n, *shape, generator=generator, dtype=torch.float64) for n in sizes]
    return [(one * (1 + place) + place + offset) for place, one in enumerate(made)]


def synced(
    build: Build, windows: list[list[Any]], *, forward: Any = None, device: str = "cpu"
) -> list[dict[str, Any]]:
    """Each rank's outputs, input gradients, parameter gradients and model after ``windows``, which
    are lists of the ranks' inputs (None: no batch). The loss is a weighted sum over all samples."""
    size = len(windows[0])
    table = Table(size)
    models = [build().to(device) for _ in range(size)]  # here: threads share their random stream

    def rank_does(rank: int) -> dict[str, Any]:
        model = models[rank]
        norms = SyncedNorms(norms_in(model), table.seat(rank))
        outputs, gradients = [], []
        for window in windows:
            norms.meetings.begin()
            if window[rank] is not None:
                inputs = window[rank].detach().clone().to(device).requires_grad_()
                output = (forward or nn.Module.__call__)(model, inputs)
                (output.double() * weights_for(output)).sum().backward()
                outputs.append(output.detach().cpu())
                gradients.append(inputs.grad.cpu())
            norms.meetings.end()
        norms.remove()
        return {"outputs": outputs, "gradients": gradients, "model": model.cpu()}

    return at_once(size, rank_does)


def weights_for(output: torch.Tensor) -> torch.Tensor:
    """Of the loss: of the sample's own place in the data, so that they do not depend on the split."""
    return (output.detach().double() * 3).cos()


def plain(build: Build, windows: list[list[Any]]) -> dict[str, Any]:
    """One process over the joined batches."""
    model = build()
    outputs, gradients = [], []
    for window in windows:
        inputs = torch.cat([one for one in window if one is not None]).requires_grad_()
        output = model(inputs)
        (output * weights_for(output)).sum().backward()
        outputs.append(output.detach())
        gradients.append(inputs.grad)
    return {"outputs": outputs, "gradients": gradients, "model": model}


def check(ranks: list[dict[str, Any]], oracle: dict[str, Any], bound: float = 1e-10) -> None:
    for what in ("outputs", "gradients"):
        for number, expected in enumerate(oracle[what]):
            parts = [one[what][number] for one in ranks if number < len(one[what])]
            assert (torch.cat(parts) - expected).abs().max() <= bound, what
    models = [one["model"] for one in ranks]
    for name, expected in oracle["model"].named_parameters():
        total = sum(dict(model.named_parameters())[name].grad for model in models)
        assert (total - expected.grad).abs().max() <= bound * expected.grad.abs().max(), name
    for name, expected in oracle["model"].named_buffers():
        values = [dict(model.named_buffers())[name] for model in models]
        assert all(torch.equal(one, values[0]) for one in values), f"{name} on every rank"
        assert (values[0] - expected).abs().max() <= bound * max(1, expected.abs().max()), name


SIZES = [(4, 4), (1, 1), (7, 2, 1), (3, 0, 5), (2, 1, 4, 3), (1, 1, 1, 1)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_it_is_one_process_over_the_joined_batch(sizes: tuple[int, ...], device: str) -> None:
    windows = [batches(sizes), batches(sizes[::-1])]
    check(synced(net, windows, device=device), plain(net, windows))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_in_any_number_of_dimensions(dims: int) -> None:
    windows = [batches((3, 1, 2), dims)]
    check(synced(lambda: net(dims), windows), plain(lambda: net(dims), windows))


@pytest.mark.parametrize(
    "options",
    [{"momentum": None}, {"momentum": 0.7}, {"affine": False}, {"eps": 0.3},
     {"track_running_stats": False}],
    ids=str,
)  # fmt: skip
def test_with_every_option_of_the_layer(options: dict[str, Any]) -> None:
    windows = [batches((3, 1)), batches((1, 6)), batches((2, 2))]
    build = lambda: net(**options)  # noqa: E731
    check(synced(build, windows), plain(build, windows))


def test_a_mean_much_larger_than_the_spread_loses_no_digits() -> None:
    windows = [batches((3, 2), offset=1e6)]
    check(synced(net, windows), plain(net, windows), bound=1e-8)


def test_a_rank_without_a_batch_follows_the_running_statistics() -> None:
    first, second = batches((3, 2)), batches((4, 4))
    windows = [first, [second[0], None]]
    ranks = synced(net, windows)
    assert [len(one["outputs"]) for one in ranks] == [2, 1]
    check(ranks, plain(net, windows))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_leaves_no_trace_in_the_running_statistics(bad: float) -> None:
    good, other = batches((3, 2)), batches((2, 4))
    spoiled = [good[0].clone(), good[1]]
    spoiled[0][0, 0] = bad
    ranks = synced(net, [good, spoiled, other])
    expected = plain(net, [good, other])["model"]
    for name, value in expected[0].named_buffers():
        mine = [dict(one["model"][0].named_buffers())[name] for one in ranks]
        assert all((one - value).abs().max() <= 1e-10 for one in mine), name
    assert not ranks[1]["outputs"][1].isfinite().all(), "the step will be skipped on every rank"


def test_channels_last_and_checkpointed_layers() -> None:
    windows = [[one.contiguous(memory_format=torch.channels_last) for one in batches((3, 1), 2)]]
    forward = lambda model, inputs: checkpoint(model, inputs, use_reentrant=False)  # noqa: E731
    ranks = synced(lambda: net(2), windows, forward=forward)
    oracle = plain(lambda: net(2), windows)
    for one in (*ranks, oracle):  # a recomputed forward moves them twice, as it does in plain torch
        for norm in norms_in(one["model"]):
            norm.reset_running_stats()
    check(ranks, oracle)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_in_smaller_types_it_is_as_exact_as_plain_batch_norm(kind: torch.dtype) -> None:
    windows = [[one.to(kind) for one in batches((6, 3))]]
    build = lambda: net().to(kind)  # noqa: E731
    ranks, usual = synced(build, windows), plain(build, windows)
    exact = plain(lambda: build().double(), [[one.double() for one in windows[0]]])
    for what in ("outputs", "gradients"):
        mine = torch.cat([one[what][0] for one in ranks])
        assert mine.dtype == kind
        error = (usual[what][0] - exact[what][0]).abs().max()
        assert (mine - exact[what][0]).abs().max() <= 2 * error, what


def test_under_autocast_it_is_what_plain_batch_norm_is_there() -> None:
    windows = [[one.float() for one in batches((4, 1), 2)]]

    def build() -> nn.Module:
        torch.manual_seed(2)
        return nn.Sequential(nn.Conv2d(3, 3, 2), nn.BatchNorm2d(3))

    class Autocast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = build()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                outputs: torch.Tensor = self.model(inputs)
            return outputs

    ranks, usual = synced(Autocast, windows), plain(Autocast, windows)
    for what in ("outputs", "gradients"):
        mine, theirs = torch.cat([one[what][0] for one in ranks]), usual[what][0]
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=0.02, atol=0.02)


def test_a_single_value_per_channel_in_all_is_refused_as_in_torch() -> None:
    table = Table(2)

    def rank_does(rank: int) -> str:
        model = net()
        norms = SyncedNorms(norms_in(model), table.seat(rank))
        norms.meetings.begin()
        try:
            if rank == 0:
                model(torch.ones(1, 3, dtype=torch.float64))
        except ValueError as error:
            return str(error)
        finally:
            norms.meetings.end()
        return ""

    assert "more than 1 value per channel" in at_once(2, rank_does)[0]


def test_outside_a_window_and_in_eval_mode_nobody_is_met() -> None:
    model, twin = net(), net()
    table = Table(2)
    norms = SyncedNorms(norms_in(model), table.seat(0))
    (inputs,) = batches((4,))
    assert torch.equal(model(inputs), twin(inputs)), "no window is open"
    norms.meetings.begin()
    model.eval(), twin.eval()
    assert torch.equal(model(inputs), twin(inputs))
    assert table.turns == 0


def test_keys_and_modules_stay_and_copies_are_plain() -> None:
    model, twin = net(), net()
    modules, keys = list(model.modules()), list(twin.state_dict())
    norms = SyncedNorms(norms_in(model), Table(2).seat(0))
    norms.meetings.begin()
    assert list(model.state_dict()) == keys
    (inputs,) = batches((4,))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(copied(inputs), net()(inputs)), "statistics of its own batch"
    norms.remove()
    assert all(mine is one for mine, one in zip(model.modules(), modules, strict=True))
    assert all("forward" not in vars(one) for one in model.modules())
    assert torch.equal(model(inputs), twin(inputs))


def test_a_compiled_model_meets_the_others_too() -> None:
    windows = [batches((3, 1)), batches((2, 2))]
    compiled = lambda: torch.compile(net(), backend="eager")  # noqa: E731
    ranks = synced(compiled, windows)
    for one in ranks:
        one["model"] = one["model"]._orig_mod
    check(ranks, plain(net, windows))


def test_pooling_is_the_law_of_total_variance() -> None:
    parts = batches((3, 1, 6))
    shares = []
    for one in parts:
        mean = one.mean(dim=0)
        squares = (one - mean).square().sum(dim=0)
        shares.append(torch.cat([torch.tensor([float(len(one))]).double(), mean, squares]))
    pooled, joined = pool(shares), torch.cat(parts)
    assert pooled.count == 10
    torch.testing.assert_close(pooled.mean, joined.mean(dim=0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(pooled.squares / 10, joined.var(dim=0, correction=0))
