"""One update on the server has the bits of the plain loop's step on plain tensors."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from paceline.errors import UsageError
from paceline.gradients.buckets import buckets_of
from paceline.server.applying import apply
from paceline.server.joint import Gradients, Part
from paceline.server.other_shards import OtherShards
from paceline.server.shards import Shard, Update
from paceline.server.tiles import Pieces
from paceline.transport.messages import OptimizerSpec
from server.stand_in import _layout

SHAPES = ((7, 5), (5,), (3, 2, 2, 2), ())
OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "foreach": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "fused": True}),
    ("Adam", {"lr": 0.01, "betas": [0.8, 0.99]}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "fused": True}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
]


def values(seed: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]
    tensors[2] = tensors[2].to(memory_format=torch.channels_last)
    return tensors


def plain(name: str, hyper: dict[str, Any], parameters: list[torch.Tensor]) -> Any:
    own = {k: tuple(v) if isinstance(v, list) else v for k, v in hyper.items()}
    return getattr(torch.optim, name)(parameters, **own)


class OnServer:
    def __init__(
        self,
        name: str,
        groups: list[dict[str, Any]],
        of_group: list[int] | None = None,
        **options: Any,
    ) -> None:
        start = values(0)
        self.layout = _layout(start)
        initial = torch.zeros(self.layout.total_bytes, dtype=torch.uint8)
        for view, value in zip(self.layout.views(initial), start, strict=True):
            view.copy_(value)
        spec = OptimizerSpec(name=name, groups=groups)
        self.pieces = Pieces(initial)
        self.shard = Shard(
            layout=self.layout, spec=spec, groups=of_group or [0] * len(start), **options
        )

    def part(self, gradients: list[torch.Tensor | None]) -> Part:
        memory = torch.zeros(self.layout.total_bytes, dtype=torch.uint8)
        held = Gradients(self.layout, memory)
        for view, gradient in zip(held.views, gradients, strict=True):
            if gradient is not None:
                view.copy_(gradient)
        norm = sum(float(g.square().sum()) for g in gradients if g is not None) ** 0.5
        return Part(gradients=held, used=bytes(g is not None for g in gradients), norm=norm)

    def apply(self, *gradients: list[Any], divisor: float = 1.0, **options: Any) -> Any:
        lr_scale = options.pop("lr_scale", 1.0)
        parts = [self.part(g) for g in gradients]
        [applied] = self.update([(parts, divisor, lr_scale)], **options)
        return applied

    def update(self, updates: list[tuple[list[Part], float, float]], **options: Any) -> Any:
        target = options.pop("target", self.pieces)
        applied = apply(
            self.shard,
            [Update(parts=p, divisor=d, lr_scale=s) for p, d, s in updates],
            source=self.pieces, target=target, elsewhere=OtherShards(),
            **{"clip_norm": None, **options},
        )  # fmt: skip
        if any(one.applied for one in applied):
            self.pieces = target
        return applied

    def empty(self) -> Pieces:
        return Pieces(torch.full((self.layout.total_bytes,), 255, dtype=torch.uint8))

    @property
    def parameters(self) -> list[torch.Tensor]:
        return self.layout.views(self.pieces.memory)


def assert_same_bits(got: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    for one, other in zip(got, wanted, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("name", "hyper"), OPTIMIZERS)
@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("tile_bytes", [64, 192, 2**20])
def test_steps_have_the_bits_of_the_plain_loop_however_parameters_are_cut(
    name: str, hyper: dict, clip_norm: float | None, tile_bytes: int
) -> None:
    on_server, parameters = OnServer(name, [hyper], tile_bytes=tile_bytes, threads=3), values(0)
    optimizer = plain(name, hyper, parameters)
    for step in range(4):
        pushes = [values(10 * step + rank) for rank in range(3)]
        for parameter, *gradients in zip(parameters, *pushes, strict=True):
            total = gradients[0].clone()
            for gradient in gradients[1:]:
                total.add_(gradient)
            parameter.grad = total.div_(3)
        bound = float("inf") if clip_norm is None else clip_norm
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, bound))
        optimizer.step()
        target = on_server.pieces if step % 2 else on_server.empty()
        applied = on_server.apply(*pushes, divisor=3.0, clip_norm=clip_norm, target=target)
        assert applied.applied
        assert applied.norm == pytest.approx(norm, rel=1e-5)
        assert_same_bits(on_server.parameters, parameters)
    on_server.shard.close()


def test_a_parameter_used_by_nobody_is_left_alone_and_one_used_by_some_counts_zeros() -> None:
    hyper = {"lr": 0.1, "weight_decay": 0.5}
    on_server, parameters = OnServer("AdamW", [hyper]), values(0)
    optimizer = plain("AdamW", hyper, parameters)
    first, second = values(1), values(2)
    on_server.apply([None, first[1], *first[2:]], [None, None, *second[2:]], divisor=2.0)
    for parameter, one, other in zip(parameters, first, second, strict=True):
        parameter.grad = (one + other) / 2
    parameters[0].grad = None
    parameters[1].grad = first[1] / 2
    optimizer.step()
    assert_same_bits(on_server.parameters, parameters)
    assert torch.equal(on_server.parameters[0], values(0)[0])


def test_lr_scale_holds_for_one_step_and_new_hyper_parameters_from_then_on() -> None:
    on_server, parameters = OnServer("SGD", [{"lr": 0.5}]), values(0)
    gradients = values(3)
    on_server.apply(gradients, lr_scale=0.25)
    on_server.apply(gradients)
    on_server.shard.set_groups([{"lr": 0.125}])
    on_server.apply(gradients)
    for rate in (0.5 * 0.25, 0.5, 0.125):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.add_(gradient, alpha=-rate)
    assert_same_bits(on_server.parameters, parameters)


def test_groups_keep_their_own_hyper_parameters() -> None:
    hypers = [{"lr": 0.5}, {"lr": 0.25, "momentum": 0.9}]
    on_server = OnServer("SGD", hypers, [0, 0, 1, 1])
    parameters = values(0)
    optimizer = torch.optim.SGD(
        [{"params": parameters[:2], **hypers[0]}, {"params": parameters[2:], **hypers[1]}]
    )
    for step in range(3):
        gradients = values(step + 1)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
        on_server.apply(gradients)
    assert_same_bits(on_server.parameters, parameters)


@pytest.mark.parametrize("tile_bytes", [64, 2**20])
@pytest.mark.parametrize("other_tile_bytes", [64, 192])
def test_state_can_be_read_by_plain_torch_and_training_goes_on_from_it(
    tile_bytes: int, other_tile_bytes: int
) -> None:
    on_server = OnServer("Adam", [{"lr": 0.01}], tile_bytes=tile_bytes)
    on_server.apply(values(1))
    state = on_server.shard.state()
    loaded = torch.load(io.BytesIO(state), weights_only=True)
    parameters = [parameter.clone() for parameter in on_server.parameters]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    optimizer.load_state_dict(loaded)
    for parameter, gradient in zip(parameters, values(2), strict=True):
        parameter.grad = gradient
    optimizer.step()
    resumed = OnServer("Adam", [{"lr": 0.01}], state=state, tile_bytes=other_tile_bytes)
    resumed.pieces.memory.copy_(on_server.pieces.memory)
    for one in (on_server, resumed):
        one.apply(values(2))
        assert_same_bits(one.parameters, parameters)


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_parameters_that_share_a_tile_part_when_only_some_are_used(name: str) -> None:
    hyper = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {"lr": 0.1}
    on_server, parameters = OnServer(name, [hyper]), values(0)
    optimizer = plain(name, hyper, parameters)
    for step, unused in enumerate((None, 1, 1, 2, None)):
        gradients: list[Any] = values(step + 1)
        if unused is not None:
            gradients[unused] = None
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        optimizer.step()
        on_server.apply(gradients, target=on_server.empty())
        assert_same_bits(on_server.parameters, parameters)
    state = torch.load(io.BytesIO(on_server.shard.state()), weights_only=True)
    for place, kept in optimizer.state_dict()["state"].items():
        for key, value in kept.items():
            assert torch.equal(torch.as_tensor(state["state"][place][key]), torch.as_tensor(value))


def test_a_state_that_differs_between_parameters_is_gone_on_from() -> None:
    """A pre-trained optimizer may have stepped some parameters more often than others."""
    parameters = values(0)
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    for step in range(3):
        for place, (parameter, gradient) in enumerate(zip(parameters, values(step), strict=True)):
            parameter.grad = gradient if place <= step else None
        optimizer.step()
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    on_server = OnServer("Adam", [{"lr": 0.01}], state=buffer.getvalue())
    for view, parameter in zip(on_server.parameters, parameters, strict=True):
        view.copy_(parameter)
    for step in range(2):
        for parameter, gradient in zip(parameters, values(7 + step), strict=True):
            parameter.grad = gradient
        optimizer.step()
        on_server.apply(values(7 + step))
    assert_same_bits(on_server.parameters, parameters)


@pytest.mark.parametrize("tile_bytes", [64, 192, 2**20])
@pytest.mark.parametrize("bucket_bytes", [64, 128, 2**20])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_sums_begun_while_backward_still_ran_have_the_same_bits(
    tile_bytes: int, bucket_bytes: int, clip_norm: float | None
) -> None:
    hyper = {"lr": 0.1, "momentum": 0.9}
    options = {"tile_bytes": tile_bytes, "bucket_bytes": bucket_bytes}
    ahead, at_once = OnServer("SGD", [hyper], **options), OnServer("SGD", [hyper], **options)
    buckets = len(buckets_of(ahead.layout, bucket_bytes))
    for step in range(3):
        pushes = [values(10 * step + rank) for rank in range(3)]
        parts = [ahead.part(push) for push in pushes]
        for filled in range(1, min(buckets, 1 + step) + 1):
            ahead.shard.sum_ahead([part.gradients for part in parts], filled)
        ahead.update([(parts, 3.0, 1.0)], clip_norm=clip_norm)
        at_once.apply(*pushes, divisor=3.0, clip_norm=clip_norm)
        assert_same_bits(ahead.parameters, at_once.parameters)


@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_updates_that_go_through_memory_together_are_one_after_the_other(
    name: str, clip_norm: float | None
) -> None:
    hyper = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {"lr": 0.1}
    together, apart = OnServer(name, [hyper]), OnServer(name, [hyper])
    pushes: list[Any] = [values(seed) for seed in range(3)]
    pushes[1][2] = None
    scales = (1.0, 0.25, 0.5)
    updates = [
        ([together.part(push)], 2.0, scale) for push, scale in zip(pushes, scales, strict=True)
    ]
    applied = together.update(updates, clip_norm=clip_norm, target=together.empty())
    for push, scale, outcome in zip(pushes, scales, applied, strict=True):
        alone = apart.apply(push, divisor=2.0, lr_scale=scale, clip_norm=clip_norm)
        assert outcome == alone
    assert_same_bits(together.parameters, apart.parameters)


def test_an_update_among_others_whose_norm_overflows_is_skipped_alone() -> None:
    huge = [torch.full(shape, 1e30) for shape in SHAPES]
    together, apart = OnServer("SGD", [{"lr": 0.1}]), OnServer("SGD", [{"lr": 0.1}])
    pushes = [huge, values(1), huge, values(2)]
    updates = [([together.part(push)], 1.0, 1.0) for push in pushes]
    applied = together.update(updates, clip_norm=1.0, target=together.empty())
    assert [one.applied for one in applied] == [False, True, False, True]
    for push in pushes:
        apart.apply(push, clip_norm=1.0)
    assert_same_bits(together.parameters, apart.parameters)


def test_a_sum_that_overflows_changes_nothing() -> None:
    on_server = OnServer("SGD", [{"lr": 0.1, "momentum": 0.9}])
    before = on_server.pieces.memory.clone()
    huge = [torch.full(shape, 3e38) for shape in SHAPES]
    applied = on_server.apply(huge, huge, divisor=2.0)
    assert not applied.applied
    assert torch.equal(on_server.pieces.memory, before)


def test_a_norm_that_overflows_matters_only_where_it_clips() -> None:
    large = [torch.full(shape, 1e30) for shape in SHAPES]
    assert OnServer("SGD", [{"lr": 0.1}]).apply(large).applied
    assert not OnServer("SGD", [{"lr": 0.1}]).apply(large, clip_norm=1.0).applied


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam", "Optimizer_", "lr_scheduler", "os"])
def test_an_optimizer_that_cannot_live_on_the_server_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        OnServer(name, [{"lr": 0.1}])
