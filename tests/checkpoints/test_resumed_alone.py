"""One worker that loads a checkpoint ends with the bits of one that was never interrupted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import paceline
from paceline import checkpoints
from paceline.events import Left
from paceline.worker.trees import flatten, unflatten


class Noisy(TensorDataset):
    """Augments by the global stream, as data sets do in the main process."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        inputs, targets = super().__getitem__(index)
        return inputs + 0.1 * torch.randn(6) + random.random() + np.random.rand(), targets


class Stream(IterableDataset[tuple[torch.Tensor, ...]]):
    def __init__(self, data: Noisy) -> None:
        self.data = data

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        return iter([self.data[place] for place in torch.randperm(len(self.data)).tolist()])


def data() -> Noisy:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(40, 6, generator=generator)
    return Noisy(inputs, torch.randint(0, 3, (40,), generator=generator))


OTHER_DEVICES = ["cuda"] if torch.cuda.is_available() else []
LOADERS: dict[str, Any] = {
    "shuffled": lambda: DataLoader(data(), batch_size=4, shuffle=True),
    "generator": lambda: DataLoader(
        data(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3)
    ),
    "stream": lambda: DataLoader(Stream(data()), batch_size=4),
    "list": lambda: list(DataLoader(data(), batch_size=4)),
}


pytestmark = pytest.mark.usefixtures("one_thread")


def build(device: str = "cpu") -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 3)
    ).to(device)
    groups = [{"params": model[0].parameters()}, {"params": model[4].parameters(), "lr": 0.02}]
    return model, torch.optim.Adam([*groups, {"params": model[1].parameters()}], lr=0.01)


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def train(
    kind: str, out: Path, *, start: int, load: Path | None = None, epochs: int = 2, **options: Any
) -> dict[str, torch.Tensor]:
    """Two passes with a save every third step, one in the midst of windows, and one after each."""
    seed(7)
    loader = LOADERS[kind]()
    seed(start)
    model, optimizer = build(options.pop("device", "cpu"))
    with paceline.Worker(model, optimizer, **options) as worker:
        for number, per in ((12, "batch"), (2, "epoch")):
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, number, gamma=0.7)
            worker.scheduler(schedule, per=per)  # type: ignore[arg-type]
        if load is not None:
            worker.load(load)
        for _ in range(epochs):
            for step, (inputs, targets) in enumerate(worker.batches(loader)):
                if step % 3 == 2:
                    worker.save(out, keep=99)
                worker.step(nn.functional.cross_entropy(worker(inputs), targets))
            with worker.evaluate():
                random.random()
            worker.save(out, keep=99)
        facts = torch.tensor(
            [worker.version, worker.samples, *(g["lr"] for g in optimizer.param_groups)]
        )
    drawn = torch.tensor([random.random(), np.random.rand()])
    return {**model.state_dict(), "facts": facts, "drawn": drawn, "torch": torch.rand(2)}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("shuffled", {}),
        ("shuffled", {"accumulate": 4}),
        ("generator", {}),
        ("stream", {"accumulate": 3}),
        ("list", {}),
        *[("shuffled", {"device": device}) for device in OTHER_DEVICES],
    ],
)
def test_from_every_checkpoint_the_end_has_the_bits_of_the_uninterrupted_run(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    whole = train(kind, tmp_path / "whole", start=0, **options)
    saved = checkpoints.found(tmp_path / "whole")
    assert len(saved) == 8
    for place, later_saves in (
        (1, 2 + 4),
        (3, 4),
        (6, 0 + 1),
    ):  # in a pass, between two, in the last
        again = train(kind, tmp_path / f"{place}", start=99, load=saved[place], **options)
        for name, value in whole.items():
            assert torch.equal(again[name], value), (saved[place].name, name)
        resumed = checkpoints.found(tmp_path / f"{place}")
        assert len(resumed) <= later_saves, "what was saved is not saved again"
    second = checkpoints.found(tmp_path / "1")[0]
    again = train(kind, tmp_path / "again", start=98, load=second, **options)
    assert all(torch.equal(again[name], value) for name, value in whole.items())


def test_the_model_loads_in_plain_torch(tmp_path: Path) -> None:
    train("list", tmp_path, start=0, epochs=1)
    model, _ = build()
    path = checkpoints.newest(tmp_path)
    tensors = load_file(path / "model.safetensors")
    model.load_state_dict(tensors)
    assert tensors["1.num_batches_tracked"] == 10


def refused(
    model: nn.Module, optimizer: torch.optim.Optimizer, checkpoint: Path, words: str
) -> None:
    worker = paceline.Worker(model, optimizer)
    with pytest.raises(paceline.CheckpointError, match=words):
        worker.load(checkpoint)
    assert len(list(worker.batches([torch.zeros(1)] * 3))) == 3, "it goes on as it was"
    worker.close()


def test_another_model_optimizer_or_loader_is_refused_by_name(tmp_path: Path) -> None:
    train("shuffled", tmp_path, start=0, epochs=1)
    inside, after = checkpoints.found(tmp_path)[2], checkpoints.found(tmp_path)[3]
    model, optimizer = build()
    wider = nn.Sequential(nn.Linear(7, 8), *list(model)[1:])
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    refused(model, plain, after, r"made with Adam over 3 groups.*has SGD")
    adam = torch.optim.Adam(wider.parameters())
    refused(wider, adam, after, r"0\.weight has shape \(8, 6\).*\(8, 7\)")
    model, optimizer = build()
    with paceline.Worker(model, optimizer) as worker:
        worker.load(inside)
        with pytest.raises(
            paceline.CheckpointError, match="has 10 batches, and this loader has 20"
        ):
            next(iter(worker.batches(DataLoader(data(), batch_size=2))))
        worker.load(after)
        with pytest.raises(paceline.CheckpointError, match="StepLR here, and the script has a Exp"):
            worker.scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))


def test_between_two_passes_load_goes_back_without_skipping_any(tmp_path: Path) -> None:
    model, optimizer = build()
    loader = LOADERS["list"]()
    with paceline.Worker(model, optimizer) as worker:
        worker.save(tmp_path)
        start = {name: value.clone() for name, value in model.state_dict().items()}
        for inputs, targets in worker.batches(loader):
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
        for _ in worker.batches(loader):
            with pytest.raises(paceline.UsageError, match="inside the loop"):
                worker.load(tmp_path)
            break
        worker.load(tmp_path)
        assert worker.version == 0
        assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())
        assert len(list(worker.batches(loader))) == 10


def test_a_full_disk_is_an_error_that_training_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = build()
    with paceline.Worker(model, optimizer) as worker:
        worker.save(tmp_path)

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        for inputs, targets in worker.batches(LOADERS["list"]()):
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
            with monkeypatch.context() as patched:
                patched.setattr("paceline.worker.snapshot.save_file", full)
                with pytest.raises(paceline.CheckpointError, match="the disk is full"):
                    worker.save(tmp_path)
        assert worker.version == 10
        assert [path.name for path in tmp_path.iterdir()] == ["000001-version-0"]


def test_wrong_values_name_what_is_allowed(tmp_path: Path) -> None:
    model, optimizer = build()
    with paceline.Worker(model, optimizer) as worker:
        for keep in (0, 1.5, True):
            with pytest.raises(paceline.UsageError, match=r"keep=.*whole number >= 1"):
                worker.save(tmp_path, keep=keep)  # type: ignore[arg-type]
        with pytest.raises(paceline.UsageError, match="no whole checkpoint here"):
            worker.load(tmp_path)


def test_tied_weights_and_other_types_are_kept(tmp_path: Path) -> None:
    def tied() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)).double()
        model[1].weight = model[0].weight
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    model, optimizer = tied()
    with paceline.Worker(model, optimizer) as worker:
        for (inputs,) in worker.batches([(torch.ones(2, 4).double(),)]):
            worker.step(worker(inputs).square().mean())
        worker.save(tmp_path)
    other, optimizer = tied()
    with paceline.Worker(other, optimizer) as worker:
        worker.load(tmp_path)
        assert torch.equal(other[1].weight, model[0].weight)
        assert other[1].weight is other[0].weight


@given(
    st.sets(st.integers(0, 9)), st.integers(0, 5), st.sets(st.integers(0, 14)), st.integers(0, 14)
)
def test_what_is_left_of_what_was_left_is_numbered_as_the_whole(
    early: set[int], rest: int, held: set[int], following: int
) -> None:
    outer = Left(owner=-1, next=10, total=10 + rest, returned=tuple(sorted(early)))
    numbers = [outer.number(place) for place in range(outer.count or 0)]
    following = min(following, len(numbers))
    returned = tuple(sorted(place for place in held if place < following))
    inner = Left(owner=-1, next=following, total=len(numbers), returned=returned)
    left = outer.narrowed(inner)
    wanted = [numbers[place] for place in (*returned, *range(following, len(numbers)))]
    assert [left.number(place) for place in range(left.count or 0)] == wanted
    assert left.before(10) == sum(number < 10 for number in wanted)


def test_trees_come_back_as_they_were() -> None:
    tree = {
        "a": [1, 2.5, None, True, "x", (1, (2,))], "b": {3: "three", "$x": 1}, "c": Counter({4: 2}),
        "t": torch.arange(3), "n": np.float64(0.1), "deep": ({"t": torch.ones(())},),
    }  # fmt: skip
    tensors: dict[str, torch.Tensor] = {}
    plain = flatten(tree, "tree", tensors)
    back = unflatten(plain, tensors)
    assert sorted(tensors) == ["tree/deep/0/t", "tree/t"]
    assert torch.equal(back.pop("t"), tree.pop("t"))  # type: ignore[arg-type]
    assert back["deep"][0]["t"] == 1
    assert {**back, "deep": 0} == {**tree, "deep": 0}
    with pytest.raises(paceline.CheckpointError, match=r"tree/x/0: a value of type function"):
        flatten({"x": [lambda: 0]}, "tree", {})


def test_a_dynamic_loss_scale_goes_on_where_it_was(tmp_path: Path) -> None:
    model, optimizer = build()
    with paceline.Worker(model, optimizer, precision="fp16") as worker:
        for inputs, targets in worker.batches(LOADERS["list"]()):
            spoil = float("inf") if worker.version == 0 and worker.clock == 0 else 1.0
            worker.step(nn.functional.cross_entropy(worker(inputs), targets) * spoil)
        worker.save(tmp_path)
        scale = worker.loss_scale
    model, optimizer = build()
    with paceline.Worker(model, optimizer, precision="fp16") as worker:
        assert worker.loss_scale != scale
        worker.load(tmp_path)
        assert worker.loss_scale == scale
