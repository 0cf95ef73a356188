"""Several shards apply what one would, bit for bit: no sockets, orders as bytes and back."""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.errors import UsageError
from paceline.gradients.layout import FlatLayout, dense_stride, layout_of
from paceline.gradients.parts import places_of
from paceline.gradients.precision.layouts import gradients_of
from paceline.server.applying import Applied
from paceline.server.building import balance, build_store
from paceline.server.joint import Gradients, Part
from paceline.server.shard_work import ShardWork
from paceline.server.shards import Update
from paceline.transport import messages
from paceline.transport.decoding import decode
from paceline.transport.shard_messages import Enter

WORKERS = 3
SHAPES = ((7, 5), (40,), (3, 2, 2, 2), (), (6, 6), (33,), (2, 2))


class Line:
    """Somebody on another host, of whom nothing is heard."""

    remote = True

    def __init__(self) -> None:
        self.said: list[Any] = []

    def carry(self, intake: Any, outgo: Any) -> None:
        self.intake, self.outgo = intake, outgo

    def send(self, message: Any) -> None:
        self.said.append((message, [bytes(m) for _, m in self.outgo.before(message)]))

    def close(self) -> None:
        return


class InProcess:
    """A shard in this process, told in bytes."""

    place = messages.ShardPlace(address="", socket="", host="")

    def __init__(self, number: int) -> None:
        self.number = number
        self.work = ShardWork(lambda message: None)
        self.lines = [Line() for _ in range(WORKERS)]

    def __str__(self) -> str:
        return f"shard {self.number}"

    def tell(self, order: messages.Message) -> None:
        self._reply = self.work.obey(decode(messages.encode(order)))

    def answer(self, within_s: float = 0.0) -> Any:
        assert self._reply is not None
        return decode(messages.encode(self._reply))

    def enter(self) -> None:
        for rank, line in enumerate(self.lines):
            self.work.hear(line, rank, 0, Enter())  # type: ignore[arg-type]


class Together:
    """``shards`` shards with the parameters ``values``. ``norms``: what became of each update."""

    def __init__(self, shards: int, values: Sequence[torch.Tensor], **options: Any) -> None:
        entries = [
            (f"p{i}", tuple(value.shape), dense_stride(value), value.dtype)
            for i, value in enumerate(values)
        ]
        self.layout = layout_of(entries)
        self.wide = gradients_of(self.layout)
        self._wide_type = self.wide.slots[0].dtype  # in which a worker's square overflows
        memory = torch.zeros(self.wide.total_bytes, dtype=torch.uint8)
        for view, value in zip(self.wide.views(memory), values, strict=True):
            view.copy_(value)
        self.far = [InProcess(number) for number in range(1, shards)]
        far: Any = None
        if shards > 1:
            far = SimpleNamespace(count=shards - 1, all=self.far, generation=0)
        self.store = build_store(
            opening(self.layout, self.wide, **options), self.layout, memory, far
        )
        self.said = balance(self.store, far, self.layout)
        self.own = [self._gradients() for _ in range(WORKERS)]
        for one in self.far:
            one.enter()

    def apply(self, updates: Sequence[Sequence[Any]], clip_norm: float | None) -> list[Applied]:
        """Each update: gradients (None: unused) of each of its workers."""
        made = []
        for number, update in enumerate(updates):
            parts = [self._part(rank + number, grads) for rank, grads in enumerate(update)]
            made.append(Update(parts=parts, divisor=1.5 if number else 2.0, lr_scale=0.5))
        return self.store.apply(made, clip_norm)

    def parameters(self) -> list[torch.Tensor]:
        found = self._views(self.store._own)
        for one in self.far:
            theirs = self._views(one.work._holding)
            for place in places_of(self.store.owners, one.number):
                found[place] = theirs[place]
        return [one.clone() for one in found]

    def state(self) -> dict[str, Any]:
        loaded: dict[str, Any] = torch.load(io.BytesIO(self.store.state()), weights_only=True)
        return loaded

    def close(self) -> None:
        self.store.close()
        for one in self.far:
            one.work.close()

    def _views(self, holding: Any) -> list[torch.Tensor]:
        return self.layout.views(holding.versions.current.pieces.memory)

    def _gradients(self) -> Gradients:
        return Gradients(self.wide, torch.zeros(self.wide.total_bytes, dtype=torch.uint8))

    def _part(self, rank: int, grads: Sequence[torch.Tensor | None]) -> Part:
        held = [self.own[rank], *(one.work._seats[rank].mapped.gradients for one in self.far)]
        for one in held:
            for view, gradient in zip(one.views, grads, strict=True):
                view.zero_() if gradient is None else view.copy_(gradient)
        norm = (
            sum(float(g.to(self._wide_type).square().sum()) for g in grads if g is not None) ** 0.5
        )
        used = bytes(gradient is not None for gradient in grads)
        return Part(gradients=held[0], used=used, norm=norm, rank=rank)


def opening(
    layout: FlatLayout, wide: FlatLayout, *, optimizer: tuple[str, dict[str, Any]], **more: Any
) -> messages.Open:
    name, hyper = optimizer
    return messages.Open(
        strategy="async",
        manifest=[
            messages.Tensor(
                name=slot.name, shape=slot.shape, stride=slot.stride,
                dtype=str(slot.dtype).removeprefix("torch."), group=0,
            )
            for slot in layout.slots
        ],
        optimizer=messages.OptimizerSpec(name=name, groups=[hyper]), clip_norm=None, region_fd=-1,
        region_bytes=wide.total_bytes, bucket_bytes=64, **{"state": None, **more},
    )  # fmt: skip


def values(seed: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = [scale * torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]
    tensors[2] = tensors[2].to(memory_format=torch.channels_last)
    return tensors


def without(tensors: list[torch.Tensor], *places: int) -> list[Any]:
    return [None if place in places else one for place, one in enumerate(tensors)]


SETTINGS: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True})},
    "clipped": {"optimizer": ("SGD", {"lr": 0.1}), "clip_norm": 1.0},
    "Adam": {"optimizer": ("Adam", {"lr": 0.01, "amsgrad": True}), "clip_norm": 5.0},
    "fused": {"optimizer": ("Adam", {"lr": 0.01, "fused": True})},
    "whole tensors": {"optimizer": ("Adafactor", {"lr": 0.01}), "clip_norm": 5.0},
    "float64": {"optimizer": ("RMSprop", {"lr": 0.01}), "dtype": torch.float64, "clip_norm": 3.0},
    "bfloat16": {"optimizer": ("AdamW", {"lr": 0.01}), "dtype": torch.bfloat16, "clip_norm": 3.0},
}


def trained(shards: int, setting: dict[str, Any]) -> tuple[Any, ...]:
    options = dict(setting)
    dtype, clip_norm = options.pop("dtype", torch.float32), options.pop("clip_norm", None)
    group = Together(shards, values(0, dtype), **options)
    said = []
    for step in range(4):
        first = [
            without(values(10 * step + rank), *([step] if step > 1 else [])) for rank in (0, 1)
        ]
        said += group.apply([first, [values(10 * step + 2)]], clip_norm)
        group.store.take_back(0)
        group.store.give(0)  # the next version is written elsewhere
    huge = values(7, scale=1e38)
    said += group.apply([[huge, huge]], clip_norm)
    said += group.apply([[values(8), without(values(9), 1, 4)]], clip_norm)
    ended = said, group.parameters(), group.state()
    group.close()
    return ended


QUICK = ("momentum", "clipped", "bfloat16")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in QUICK else pytest.mark.full) for one in SETTINGS]
)
def test_several_shards_have_the_bits_of_one(name: str) -> None:
    one = trained(1, SETTINGS[name])
    for shards in (2, 3):
        said, parameters, state = trained(shards, SETTINGS[name])
        assert said == one[0]
        assert all(map(torch.equal, parameters, one[1]))
        assert state["param_groups"] == one[2]["param_groups"]
        assert state["state"].keys() == one[2]["state"].keys()
        for place, theirs in one[2]["state"].items():
            for key, value in theirs.items():
                assert torch.equal(
                    torch.as_tensor(state["state"][place][key]), torch.as_tensor(value)
                )


def test_a_sum_that_overflows_in_one_shard_is_skipped_in_all() -> None:
    setting = {"optimizer": ("SGD", {"lr": 0.1})}
    group = Together(3, values(0), **setting)
    before = group.parameters()
    for place in range(len(SHAPES)):
        grads = values(1)
        grads[place] = torch.full_like(grads[place], 3e38)
        (applied,) = group.apply([[grads, grads]], None)
        assert not applied.applied
    assert all(map(torch.equal, before, group.parameters()))
    (applied,) = group.apply([[values(1)]], None)
    assert applied.applied
    group.close()


def test_a_state_goes_on_in_another_number_of_shards() -> None:
    setting: dict[str, Any] = {"optimizer": ("Adam", {"lr": 0.01})}
    ends = []
    for first, then in ((1, 1), (1, 3), (3, 1), (2, 3)):
        group = Together(first, values(0), **setting)
        group.apply([[without(values(1), 2)]], None)
        again = Together(then, group.parameters(), **setting, state=group.store.state())
        again.apply([[values(2)]], 2.0)
        ends.append(again.parameters())
        group.close()
        again.close()
    for end in ends[1:]:
        assert all(map(torch.equal, end, ends[0]))


def test_each_shard_says_of_what_a_worker_has_what_one_would_say() -> None:
    setting: dict[str, Any] = {"optimizer": ("SGD", {"lr": 0.1})}
    one, several = Together(1, values(0), **setting), Together(3, values(0), **setting)
    for group in (one, several):
        group.store.give(0)
    assert one.store.facts(0) == several.store.facts(0)
    assert one.said == ""
    assert several.said.startswith("the parameters are divided: ")
    one.close()
    several.close()


def test_a_worker_is_shown_each_piece_once_and_a_version_that_it_has_not_again() -> None:
    group = Together(2, values(0), optimizer=("SGD", {"lr": 0.1}))
    line = group.far[0].lines[0]
    entered, first = line.said[0]
    assert entered.server_pid
    reply = messages.Latest(version=1, parameters_fd=0)
    decided = messages.Ended(version=1, clock=1, progress=1, waited_s=0.0, parameters_fd=0)
    group.store.give(0)
    group.store.bring(0, decided)
    assert line.said[-1][1] == []  # the version that it entered with
    group.apply([[values(1)]], None)
    group.store.lend(0)
    group.store.bring(0, reply)
    assert [len(one) for one in line.said[-1][1]] == [len(one) for one in first]
    assert line.said[-1][1] != first
    assert line.said[-1][0].glance
    group.close()


def test_float32_and_float64_in_one_model_are_not_divided() -> None:
    mixed = values(0)
    mixed[1] = mixed[1].double()
    with pytest.raises(
        UsageError, match="float32 and of float64 in one model cannot work together"
    ):
        Together(2, mixed, optimizer=("SGD", {"lr": 0.1}))
