"""The small pure pieces: windows, means, buffers, batches, divergence, phases."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from typing import Any

import msgspec
import pytest
import torch
from fakes import ScriptedPlane, Ticks
from torch import nn

import paceline
from paceline.errors import MismatchError
from paceline.worker import buffers
from paceline.worker.agreement import Agreement, pooled_mean
from paceline.worker.batch import Fingerprint, map_tensors, on_device, samples_in
from paceline.worker.divergence import DivergenceWatch
from paceline.worker.phases import Phases
from paceline.worker.plane import Window
from paceline.worker.window import OpenWindow

Pair = namedtuple("Pair", "x y")


def window(unit: float | None) -> OpenWindow:
    given = Window(clock=0, version=0, batches=(0, 1), unit=unit)
    return OpenWindow(window=given, default_unit=8.0, started_s=0.0)


def test_the_first_weight_needs_no_factor_where_a_push_stands_alone() -> None:
    own = window(None)
    assert [own.factor(5.0), own.factor(10.0)] == [1.0, 2.0]
    assert window(8.0).factor(5.0) == 5 / 8
    assert window(None).contribution(stop=False, total=None).unit == 8.0


def test_a_windows_loss_is_its_weighted_mean() -> None:
    own = window(None)
    assert own.loss() is None
    own.add(1.0, 1.0, 2.0)
    assert own.loss() == 2.0
    own.add(3.0, 3.0, 4.0)
    assert own.loss() == 3.5


def test_the_pooled_mean_is_exact_and_ignores_the_weightless() -> None:
    assert pooled_mean([(math.nan, 0.0), (0.1, 3.0)]) == 0.1
    assert pooled_mean([(1.0, 1.0), (2.0, 3.0)]) == 1.75
    assert math.isnan(pooled_mean([(1.0, 0.0)]))
    values = [(1e16, 1.0), (1.0, 1.0), (-1e16, 1.0)]
    assert pooled_mean(values) == 1 / 3


def test_bytes_of_any_size_reach_all_ranks() -> None:
    plane = ScriptedPlane(
        [], world_size=3, answer=lambda rank, f: {**f, "part": None, "more": False}
    )
    payload = bytes(range(256)) * 70_000
    assert Agreement(plane, rank=0).share("order", payload) == payload
    assert plane.calls.count("order") == 3


def test_different_calls_name_both() -> None:
    plane = ScriptedPlane([], world_size=2, answer=lambda rank, f: {**f, "call": "worker.mean"})
    with pytest.raises(MismatchError, match=r"worker\.evaluate.*worker\.mean"):
        Agreement(plane, rank=0).gather("worker.evaluate")


def test_buffers_become_the_weighted_mean_and_the_largest_count() -> None:
    norm, untouched = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    other = nn.BatchNorm1d(2)
    other.running_mean = torch.tensor([4.0, 8.0])
    other.running_var = torch.tensor([5.0, 1.0])
    other.num_batches_tracked = torch.tensor(7)
    assert agreed_with(nn.Sequential(untouched, norm), nn.Sequential(untouched, other)) == 3, (
        "equal buffers do not travel"
    )
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.running_mean.tolist() == [3.0, 6.0]
    assert norm.running_var.tolist() == [4.0 + 3.0, 1.0 + 12.0], "of both ranks' samples together"
    assert int(norm.num_batches_tracked or 0) == 7


def test_a_variance_follows_means_that_differ_though_it_does_not() -> None:
    norm, other = nn.BatchNorm1d(1, affine=False), nn.BatchNorm1d(1, affine=False)
    other.running_mean = torch.tensor([4.0])
    agreed_with(norm, other)
    assert norm.running_var is not None
    assert norm.running_var.tolist() == [1.0 + 3.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_statistics_that_a_nan_has_ruined_do_not_ruin_the_others(bad: float) -> None:
    sound, ruined = torch.tensor([2.0, 4.0]), torch.tensor([bad, 4.0])
    assert buffers.combined([ruined, sound], [3.0, 1.0]).tolist() == [2.0, 4.0]
    assert not buffers.combined([ruined, ruined], [3.0, 1.0]).isfinite().all()
    norm, other = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    other.running_mean, other.running_var = torch.tensor([bad]), torch.tensor([float("nan")])
    agreed_with(norm, other)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert [norm.running_mean.item(), norm.running_var.item()] == [0.0, 1.0]


def agreed_with(model: nn.Module, other: nn.Module) -> int:
    """Agree on ``model``'s buffers, of weight 1, with ``other``'s of weight 3. How many travelled."""
    differ = [not torch.equal(*pair) for pair in zip(model.buffers(), other.buffers(), strict=True)]
    moves = [i for i, one in enumerate(differ) if one or (i % 3 == 1 and differ[i - 1])]
    theirs = list(other.buffers())
    waiting = [theirs[index].detach().numpy().tobytes() for index in moves]
    plane = ScriptedPlane(
        [], world_size=2, answer=lambda rank, f: {**f, "part": waiting.pop(0), "weight": 3.0}
    )
    digests = [buffers.digests(model), buffers.digests(other)]
    buffers.agree(model, Agreement(plane, rank=0), digests, 1.0)
    assert not waiting
    return len(plane.calls)


def test_untrained_tensors_are_frozen_parameters_and_buffers() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    trained = [model[0].weight]
    assert len(buffers.untrained(model, trained)) == 3 + 3


def test_the_digest_ignores_memory_format_and_sees_a_sign_of_zero() -> None:
    conv = nn.Conv2d(3, 4, 2)
    plain = buffers.parameter_digest(conv)
    assert buffers.parameter_digest(conv.to(memory_format=torch.channels_last)) == plain
    with torch.no_grad():
        conv.bias[0] = 0.0  # type: ignore[index]
        zero = buffers.parameter_digest(conv)
        conv.bias[0] = -0.0  # type: ignore[index]
    assert buffers.parameter_digest(conv) != zero


def test_samples_are_the_first_tensors_first_dimension() -> None:
    assert samples_in((torch.ones(5, 2), torch.ones(3))) == 5
    assert samples_in({"id": "a", "x": [torch.ones(4)]}) == 4
    assert samples_in(["a", "b"]) == 2
    assert samples_in(torch.ones(())) == 1
    assert samples_in(7) == 1


def test_batches_keep_their_type_and_identity() -> None:
    pair = Pair(torch.ones(2), "name")
    assert on_device(pair, torch.device("cpu")) is pair
    changed = map_tensors(pair, lambda t: t + 1)
    assert isinstance(changed, Pair)
    assert changed.x.tolist() == [2.0, 2.0]
    ordered = OrderedDict(a=torch.ones(1), b=2)
    assert type(map_tensors(ordered, lambda t: t + 1)) is OrderedDict
    assert map_tensors([1, {"x": None}], lambda t: t + 1) == [1, {"x": None}]


def fingerprint(*batches: Any) -> bytes:
    series = Fingerprint()
    return [series.add(batch) for batch in batches][-1]


def test_fingerprints_tell_batches_apart() -> None:
    big = torch.arange(10_000.0)
    assert fingerprint([big, "a"]) == fingerprint([big.clone(), "a"])
    assert fingerprint([big, "a"]) != fingerprint([big, "b"])
    assert fingerprint([big]) != fingerprint([big.flip(0)])
    assert fingerprint({"x": 1}) != fingerprint({"y": 1})
    assert fingerprint([1], [2]) != fingerprint([2], [1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64, torch.int64])
def test_a_fingerprint_sees_values_of_every_type_and_layout(dtype: torch.dtype) -> None:
    values = torch.tensor([[1, 0], [0, 1], [1, 1]]).to(dtype)
    assert fingerprint(values) == fingerprint(values.t().contiguous().t())
    assert fingerprint(values) != fingerprint(values.flip(0))
    assert fingerprint(values[0, 0]) != fingerprint(values[0, 1])


def test_divergence_is_told_once() -> None:
    watch = DivergenceWatch()
    assert [watch.feed(loss) for loss in (2.0, 1.0, 0.5)] == ["", "", ""]
    assert "nan" in watch.feed(math.nan)
    assert watch.feed(math.inf) == ""


def test_a_loss_far_above_its_best_for_long_diverges_and_noise_does_not() -> None:
    watch = DivergenceWatch()
    told = [watch.feed(2.0 if n < 50 else 500.0) for n in range(200)]
    assert sum(bool(text) for text in told) == 1
    noisy = DivergenceWatch()
    assert not any(noisy.feed(0.01 if n % 2 else 1.0) for n in range(500))
    learned = DivergenceWatch()
    assert not any(learned.feed(2.3 if n == 0 else 0.001 * (1 + 30 * (n % 3))) for n in range(500))


def test_phases_add_up_and_know_their_age() -> None:
    phases = Phases(Ticks())
    phases.enter("data")
    phases.enter("forward")
    phases.enter("forward")
    assert phases.report() == ("forward", 2.0)
    phases.enter("backward")
    spent = phases.take()
    assert {name: s for name, s in spent.items() if s} == {
        "user": 1.0, "data": 1.0, "forward": 3.0, "backward": 1.0
    }  # fmt: skip
    assert phases.report() == ("backward", 2.0)
    assert sum(phases.take().values()) == 2.0


def test_facts_travel_as_plain_values() -> None:
    plane = ScriptedPlane([])
    facts = Agreement(plane, rank=0).gather("x", seed=2**64 - 1, part=b"\x00", none=None)
    assert facts == [{"call": "x", "rank": 0, "seed": 2**64 - 1, "part": b"\x00", "none": None}]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(1)) == 1


def test_all_public_names_are_there() -> None:
    for name in paceline.__all__:
        assert getattr(paceline, name) is not None
    assert set(paceline.__all__) <= set(dir(paceline))
    with pytest.raises(AttributeError, match="Wroker"):
        paceline.Wroker  # noqa: B018
