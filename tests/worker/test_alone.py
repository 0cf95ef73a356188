"""One worker alone is the plain PyTorch loop, bit for bit; and its calls do what they say."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline import trace

STRATEGIES = ["sync", "sync:server", "sync:allreduce", "backup:1", "ssp:3", "async", "async:sum"]


def build(**options: Any) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    data = TensorDataset(torch.randn(45, 5), torch.randint(0, 3, (45,)))
    return model, optimizer, DataLoader(data, batch_size=8, shuffle=True, **options)


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets)


def same_bits(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.fixture(scope="module")
def plain() -> tuple[nn.Module, torch.Tensor]:
    model, optimizer, loader = build()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
    for _ in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
    return model, torch.rand(3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_worker_is_the_plain_loop(strategy: str, plain: tuple[nn.Module, torch.Tensor]) -> None:
    model, optimizer, loader = build()
    with paceline.Worker(model, optimizer, strategy=strategy, clip_norm=0.5) as worker:
        worker.scheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12))
        for _ in range(2):
            for inputs, targets in worker.batches(loader):
                worker.step(cross_entropy(worker(inputs), targets))
    assert same_bits(model, plain[0])
    assert torch.equal(torch.rand(3), plain[1]), "the random stream is the plain loop's"


def test_loader_processes_change_nothing() -> None:
    results = []
    for processes in (0, 2):
        model, optimizer, loader = build(num_workers=processes)
        with paceline.Worker(model, optimizer) as worker:
            for inputs, targets in worker.batches(loader):
                worker.step(cross_entropy(worker(inputs), targets))
        results.append(model)
    assert same_bits(*results)


def test_accumulation_is_the_loop_with_the_division_by_the_window() -> None:
    model, optimizer, loader = build(drop_last=True)
    for number, (inputs, targets) in enumerate(loader):
        cross_entropy(model(inputs), targets).backward()
        if number % 2 or number == 4:
            window = 2 if number % 2 else 1
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad /= window
            optimizer.step()
            optimizer.zero_grad()
    accumulated, optimizer, loader = build(drop_last=True)
    with paceline.Worker(accumulated, optimizer, accumulate=2) as worker:
        results = [
            worker.step(cross_entropy(worker(inputs), targets))
            for inputs, targets in worker.batches(loader)
        ]
        assert [r.window_ended for r in results] == [False, True, False, True, True]
        assert (worker.version, worker.clock, worker.samples) == (3, 3, 40)
    assert same_bits(model, accumulated)


def test_a_gradient_from_before_is_no_part_of_the_first_update() -> None:
    models = []
    for before in (False, True):
        model, optimizer, loader = build()
        model.eval()  # so that this forward changes no statistics
        if before:
            cross_entropy(model(torch.ones(2, 5)), torch.tensor([0, 1])).backward()
        model.train()
        with paceline.Worker(model, optimizer) as worker:
            for inputs, targets in worker.batches(loader):
                worker.step(cross_entropy(worker(inputs), targets))
        models.append(model)
    assert same_bits(*models)


def test_global_batch_decides_the_window() -> None:
    model, optimizer, loader = build()
    with paceline.Worker(model, optimizer, global_batch=24) as worker:
        for inputs, targets in worker.batches(loader):
            worker.step(cross_entropy(worker(inputs), targets))
        assert worker.version == 2
    model, optimizer, loader = build()
    with paceline.Worker(model, optimizer, global_batch=20) as worker:
        batches = iter(worker.batches(loader))
        with pytest.raises(paceline.UsageError, match="global_batch=20"):
            next(batches)


def test_steps_repeat_a_short_loader_and_cut_a_long_one() -> None:
    model, optimizer, loader = build()
    with paceline.Worker(model, optimizer, accumulate=2) as worker:
        for steps in (2, 7):
            batches = worker.batches(loader, steps=steps)
            assert len(batches) == 2 * steps
            assert (
                sum(1 for x, y in batches if worker.step(cross_entropy(worker(x), y))) == 2 * steps
            )


@pytest.mark.parametrize("source", [list, iter, lambda b: (x for x in b)])
def test_any_iterable_feeds_the_loop(source: Any) -> None:
    model, optimizer, loader = build()
    batches = list(loader)
    with paceline.Worker(model, optimizer) as worker:
        seen = [
            worker.step(cross_entropy(worker(x), y)) for x, y in worker.batches(source(batches))
        ]
    assert len(seen) == len(batches)


def test_evaluation_restores_modes_and_shares_nothing_alone() -> None:
    model, optimizer, loader = build()
    model[1].eval()
    with paceline.Worker(model, optimizer) as worker:
        for number, (inputs, targets) in enumerate(worker.batches(loader)):
            worker.step(cross_entropy(worker(inputs), targets))
            if number == 1:
                with worker.evaluate():
                    assert not model.training
                    assert not torch.is_grad_enabled()
                    assert sum(len(x) for x, _ in worker.batches(loader)) == 45
                    assert worker.mean(torch.tensor(2.5), 4) == 2.5
                    with pytest.raises(paceline.UsageError, match="evaluate"):
                        worker.step(cross_entropy(worker(inputs), targets))
                with pytest.raises(paceline.UsageError, match="inside the training loop"):
                    worker.mean(1.0)
                assert model.training
                assert not model[1].training
        with worker.evaluate():
            assert len(worker.batches(loader)) == 6
            assert worker.mean(0.25, 8) == 0.25
        assert worker.mean(3.0) == 3.0
        outer, inner = worker.evaluate(), worker.evaluate()
        with outer, pytest.raises(paceline.UsageError, match="Leave the first"):
            inner.__enter__()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("optimizer.step()", "Delete the line 'optimizer.step"),
        ("optimizer.zero_grad()", "Delete the line 'optimizer.zero_grad"),
        ("model.zero_grad()", "Delete the line 'model.zero_grad"),
        ("loss.backward()", "backward"),
        ("optimizer.add_param_group({'params': [nn.Parameter(torch.ones(1))]})", "before Worker"),
    ],
)
def test_left_over_lines_are_named(line: str, words: str) -> None:
    model, optimizer, loader = build()
    with paceline.Worker(model, optimizer) as worker:
        for inputs, targets in worker.batches(loader):
            names = {"loss": cross_entropy(worker(inputs), targets), "nn": nn, "torch": torch}
            with pytest.raises(paceline.UsageError, match=words):
                exec(line, {**names, "model": model, "optimizer": optimizer})
            break


def test_wrapped_models_and_closures_are_refused() -> None:
    model, _, _ = build()
    with pytest.raises(paceline.UsageError, match="LBFGS"):
        paceline.Worker(model, torch.optim.LBFGS(model.parameters()))


def test_a_closed_worker_leaves_no_trace_in_the_process() -> None:
    model, optimizer, loader = build()
    hook = sys.excepthook
    before = (set(vars(model)), set(vars(optimizer)))
    worker = paceline.Worker(model, optimizer)
    pickle.dumps(model)
    copy.deepcopy(model)
    assert sys.excepthook is not hook
    worker.close()
    worker.close()
    assert sys.excepthook is hook
    assert (set(vars(model)), set(vars(optimizer))) == before
    inputs, targets = next(iter(loader))
    cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(paceline.UsageError, match=r"after worker\.close"):
        worker.batches(loader)


def test_forward_returns_fp32_whatever_the_model_computes() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> Any:
            return {"a": (x * self.weight).bfloat16(), "b": [x.half(), 3], "c": x}

    model = Half()
    with paceline.Worker(model, torch.optim.SGD(model.parameters(), lr=0.1)) as worker:
        out = worker(torch.ones(2))
        with worker.autocast():
            pass
    assert out["a"].dtype == out["b"][0].dtype == torch.float32
    assert out["b"][1] == 3


def test_a_non_finite_gradient_is_skipped_and_said() -> None:
    model, optimizer, loader = build()
    with paceline.Worker(model, optimizer) as worker:
        results = []
        for number, (inputs, targets) in enumerate(worker.batches(loader)):
            loss = cross_entropy(worker(inputs), targets)
            results.append(worker.step(loss * float("nan") if number == 1 else loss))
    assert [r.applied for r in results] == [True, False, True, True, True, True]
    assert "4.weight" in results[1].reason or "0.weight" in results[1].reason


def test_a_schedule_counts_committed_batches_and_passes() -> None:
    model, optimizer, loader = build()
    steps = {"batch": 0, "epoch": 0}

    class Counter(torch.optim.lr_scheduler.LambdaLR):
        def __init__(self, name: str) -> None:
            self.name = name
            super().__init__(optimizer, lambda _: 1.0)

        def step(self, *args: Any) -> None:
            steps[self.name] += 1
            super().step(*args)

    with paceline.Worker(model, optimizer, accumulate=2) as worker:
        per_batch = worker.scheduler(Counter("batch"))
        worker.scheduler(Counter("epoch"), per="epoch")
        start = dict(steps)
        for number, (inputs, targets) in enumerate(worker.batches(loader)):
            loss = cross_entropy(worker(inputs), targets)
            worker.step(loss * float("inf") if number == 0 else loss)
        assert steps["batch"] - start["batch"] == 4, "the window with an infinity does not count"
        assert steps["epoch"] - start["epoch"] == 1
        assert isinstance(per_batch, Counter)
        plateau: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        with pytest.raises(paceline.UsageError, match="metric"):
            worker.scheduler(plateau)


def test_no_warning_about_the_order_of_steps(recwarn: pytest.WarningsRecorder) -> None:
    model, optimizer, loader = build()
    with paceline.Worker(model, optimizer) as worker:
        worker.scheduler(torch.optim.lr_scheduler.StepLR(optimizer, 3))
        for inputs, targets in worker.batches(loader):
            worker.step(cross_entropy(worker(inputs), targets))
    assert [str(w.message) for w in recwarn if "lr_scheduler" in str(w.message)] == []


def test_the_trace_tells_the_run(tmp_path: Path) -> None:
    model, optimizer, loader = build()
    runtime = paceline.Runtime(out=tmp_path)
    with paceline.Worker(model, optimizer, accumulate=4, runtime=runtime) as worker:
        for number, (inputs, targets) in enumerate(worker.batches(loader)):
            if number != 1:
                worker.step(cross_entropy(worker(inputs), targets))
        worker.log(accuracy=0.5, loss=torch.tensor(2.0))
    with (tmp_path / "rank-0.jsonl").open("rb") as lines:
        machine = trace.Unscheduled  # written where other processes kept this one waiting
        records = [one for one in trace.decode_lines(lines) if not isinstance(one, machine)]
    kinds = [type(record).__name__ for record in records]
    told = ["Header", "Setup", "Note", "Step", "Step", "Pass", "Metric", "Metric", "Close"]
    assert kinds == told, "the note: accumulation and batch norm"
    setup, step, last, done, metric = records[1], *records[3:7]
    assert isinstance(setup, trace.Setup)
    assert (setup.strategy, setup.topology, setup.accumulate) == ("sync", "local", 4)
    assert len(setup.digest) == 64
    assert isinstance(step, trace.Step)
    assert (step.batches, step.weight, step.applied) == (4, 24, True)
    assert step.loss is not None
    assert isinstance(last, trace.Step)
    assert (last.batches, last.weight) == (2, 13)
    assert isinstance(done, trace.Pass)
    assert (done.skipped, done.version) == (1, 2)
    assert isinstance(metric, trace.Metric)
    assert (metric.name, metric.value, metric.samples) == ("accuracy", 0.5, 37)


def test_the_start_line_says_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    model, optimizer, loader = build()
    with paceline.Worker(model, optimizer, strategy="ssp", accumulate=4) as worker:
        for inputs, targets in worker.batches(loader):
            worker.step(cross_entropy(worker(inputs), targets))
    said = capsys.readouterr().err.splitlines()
    assert ["batch norm" in line for line in said] == [False, True], "a notice follows"
    for words in ("ssp:3 on local", "1 x 4 x 8 = 32 samples", "float32", "threads"):
        assert words in said[0]


def test_one_worker_agrees_with_itself() -> None:
    model, optimizer, loader = build()
    with paceline.Worker(model, optimizer) as worker:
        worker.verify(every=2)
        for inputs, targets in worker.batches(loader):
            worker.step(cross_entropy(worker(inputs), targets))
            with pytest.raises(paceline.UsageError, match="inside the training loop"):
                worker.verify()
        worker.verify()
        with pytest.raises(paceline.UsageError, match="every=0"):
            worker.verify(every=0)
