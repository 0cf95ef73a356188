"""Promises of the user's loop, each played on real workers; run by test_loop.py.

``scenarios.py OUT STRATEGY`` plays every scenario in turn on the workers that run it and writes
what each rank saw to ``OUT/<scenario>-rank<r>.json``. A scenario is an ordinary training script.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import paceline

Result = dict[str, Any]
SCENARIOS: dict[str, Callable[[str], Result]] = {}
RANK = paceline.current_launch().rank


def scenario(function: Callable[[str], Result]) -> Callable[[str], Result]:
    SCENARIOS[function.__name__] = function
    return function


def data(batches: int = 12, batch: int = 4, **options: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(batches * batch, 6, generator=generator)
    targets = torch.randint(0, 3, (batches * batch,), generator=generator)
    return DataLoader(TensorDataset(inputs, targets), batch_size=batch, **options)


def net() -> nn.Module:
    torch.manual_seed(7 + RANK)  # replicas start different on purpose: rank 0's must win
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def sgd(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


def unhurried(batches: Any) -> Any:
    """On demand a quick rank could take all of a short pass before another has its second batch."""
    for batch in batches:
        time.sleep(0.03)
        yield batch


def digest(model: nn.Module) -> str:
    hasher = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        hasher.update(name.encode())
        hasher.update(tensor.detach().contiguous().numpy().tobytes())
    return hasher.hexdigest()


def gloo_threads() -> int:
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum("gloo" in name for name in names)


def train(worker: paceline.Worker, loader: Any, **options: Any) -> list[Any]:
    outcomes = []
    for inputs, targets in worker.batches(loader, **options):
        outcomes.append(worker.step(nn.functional.cross_entropy(worker(inputs), targets)))
    return outcomes


@scenario
def replicas_start_from_rank_0_and_end_equal(strategy: str) -> Result:
    gc.disable()
    model = net()
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        start = digest(model)
        outcomes = train(worker, data())
        end = digest(model)
    left = gloo_threads()
    gc.enable()
    return {
        "gloo_threads_left": left,
        "start": start,
        "end": end,
        "closed": digest(model),
        "windows": len(outcomes),
        "applied": sum(o.applied for o in outcomes),
        "version": worker.version,
        "norms": all(o.norm > 0 for o in outcomes if o.applied),
        "keys": list(model.state_dict()),
    }


@scenario
def break_on_one_rank_lets_the_others_go_on(strategy: str) -> Result:
    model = net()
    steps = 0
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        for inputs, targets in worker.batches(data()):
            time.sleep(0.03)
            if worker.rank == 1 and steps == 2:
                break
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
            steps += 1
        with worker.evaluate():
            total = worker.mean(1.0, 1.0)
        end = digest(model)
    return {"steps": steps, "end": end, "mean": total}


@scenario
def an_iteration_without_step_counts_as_weight_zero(strategy: str) -> Result:
    model = net()
    steps = handed = 0
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        for number, (inputs, targets) in enumerate(unhurried(worker.batches(data()))):
            handed += 1
            if worker.rank == 1 and number == 1:
                continue
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
            steps += 1
        end = digest(model)
    return {"steps": steps, "handed": handed, "end": end, "version": worker.version}


@scenario
def stop_is_agreed(strategy: str) -> Result:
    model = net()
    steps = 0
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        for inputs, targets in worker.batches(data(60)):
            time.sleep(0.03)
            worker.stop(worker.rank == 1 and steps == 2)
            worker.step(nn.functional.cross_entropy(worker(inputs), targets))
            steps += 1
        outside = [worker.stop(False), worker.stop(worker.rank == 0)]
        end = digest(model)
    return {"steps": steps, "end": end, "outside": outside}


@scenario
def ranks_may_run_out_of_their_own_data_at_different_times(strategy: str) -> Result:
    model = net()
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        outcomes = train(worker, data(3 + 3 * worker.rank), split=False)
        end = digest(model)
    return {"steps": len(outcomes), "end": end}


@scenario
def rank_0_alone_may_evaluate_inside_the_loop(strategy: str) -> Result:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    seen: list[Any] = []
    with paceline.Worker(model, sgd(model), strategy=strategy, accumulate=2) as worker:
        for number, (inputs, targets) in enumerate(worker.batches(data(24))):
            loss = nn.functional.cross_entropy(worker(inputs), targets)
            before = digest(model)
            if worker.rank == 0 and number in (1, 2):
                with worker.evaluate():
                    count = sum(len(x) for x, _ in worker.batches(data(5)))
                    local = worker.mean(3.0, 2.0)
                    seen.append([count, local, model.training, torch.is_grad_enabled()])
                seen.append([digest(model) == before, model.training, torch.is_grad_enabled()])
            worker.step(loss)
        end = digest(model)
    return {"seen": seen, "end": end}


@scenario
def evaluation_after_the_loop_is_shared_exact_and_equal(strategy: str) -> Result:
    model = net()
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        train(worker, data())
        count, correct = 0, 0.0
        with worker.evaluate():
            for inputs, targets in worker.batches(data(7, 3)):
                correct += (worker(inputs).argmax(1) == targets).sum().item()
                count += len(targets)
            pooled = worker.mean(correct / max(count, 1), count)
    with torch.no_grad():
        everything = torch.cat([x for x, _ in data(7, 3)])
        labels = torch.cat([y for _, y in data(7, 3)])
        alone = (model(everything).argmax(1) == labels).double().mean().item()
    return {"count": count, "pooled": pooled, "alone": alone}


class Branches(nn.Module):
    """`never` is used by nobody, `odd` by rank 1 only."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.odd, self.never = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.trunk(x)
        return out + self.odd(x) if RANK == 1 else out


@scenario
def an_unused_parameter_is_left_alone(strategy: str) -> Result:
    torch.manual_seed(7)
    model = Branches()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    with paceline.Worker(model, optimizer, strategy=strategy) as worker:
        train(worker, data())
        end = digest(model)
        grads = {name: p.grad is None for name, p in model.named_parameters()}
    moved = {name: not torch.equal(p, before[name]) for name, p in model.named_parameters()}
    return {"moved": moved, "end": end, "grad_is_none": grads["never.weight"]}


@scenario
def groups_frozen_and_channels_last_parameters_work(strategy: str) -> Result:
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 2), nn.Flatten(), nn.Linear(4, 3)
    ).to(memory_format=torch.channels_last)
    model[4].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(
        [
            {"params": [model[0].weight, model[0].bias], "lr": 0.1},
            {"params": [model[2].weight, model[2].bias, model[4].weight], "momentum": 0.9},
        ],
        lr=0.05,
    )
    strides = [p.stride() for p in model.parameters()]
    inputs = torch.randn(48, 1, 4, 4, generator=torch.Generator().manual_seed(3))
    loader = DataLoader(TensorDataset(inputs, torch.arange(48) % 3), batch_size=4)
    with paceline.Worker(model, optimizer, strategy=strategy) as worker:
        train(worker, loader)
        end = digest(model)
        kept = strides == [p.stride() for p in model.parameters()]
    return {"end": end, "strides_kept": kept, "state": len(optimizer.state_dict()["state"])}


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8))
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(self.inner, x, use_reentrant=False)
        out: torch.Tensor = self.last(hidden)
        return out


@scenario
def gradient_checkpointing_works(strategy: str) -> Result:
    model = Checkpointed()
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        outcomes = train(worker, data())
        return {"end": digest(model), "applied": all(o.applied for o in outcomes)}


@scenario
def several_forwards_per_step_work(strategy: str) -> Result:
    model = net()
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        for inputs, targets in worker.batches(data()):
            one, two = worker(inputs), worker(inputs + 0.1)
            worker.step(nn.functional.cross_entropy(one + two, targets))
        return {"end": digest(model)}


class Stream(IterableDataset[Any]):
    def __init__(self, batches: int | None) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(5)
        counter = itertools.count() if self.batches is None else range(self.batches * 4)
        for number in counter:
            yield torch.randn(6, generator=generator), number % 3


@scenario
def a_stream_is_split_by_batch(strategy: str) -> Result:
    model = net()
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        outcomes = train(worker, DataLoader(Stream(11), batch_size=4))
        return {"steps": len(outcomes), "end": digest(model)}


@scenario
def an_endless_loader_ends_after_steps(strategy: str) -> Result:
    model = net()
    with paceline.Worker(model, sgd(model), strategy=strategy, accumulate=2) as worker:
        outcomes = train(worker, DataLoader(Stream(None), batch_size=4), steps=5)
        windows = sum(o.window_ended for o in outcomes)
        return {"steps": len(outcomes), "windows": windows, "end": digest(model)}


@scenario
def a_short_loader_is_repeated_for_steps(strategy: str) -> Result:
    model = net()
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        outcomes = train(worker, data(5, shuffle=True), steps=6)
        return {"steps": len(outcomes), "end": digest(model)}


@scenario
def a_cosine_ends_at_the_same_point(strategy: str) -> Result:
    model = net()
    optimizer = sgd(model)
    with paceline.Worker(model, optimizer, strategy=strategy) as worker:
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=24)
        worker.scheduler(cosine)
        train(worker, data())
        middle = optimizer.param_groups[0]["lr"]
        train(worker, data())
        end = optimizer.param_groups[0]["lr"]
        return {"middle": middle, "end": end, "digest": digest(model)}


@scenario
def a_learning_rate_of_zero_reaches_the_optimizer(strategy: str) -> Result:
    model = net()
    optimizer = sgd(model)
    with paceline.Worker(model, optimizer, strategy=strategy) as worker:
        train(worker, data())
        before = digest(model)
        optimizer.param_groups[0]["lr"] = 0.0
        train(worker, data())
        return {"same": digest(model) == before}


@scenario
def the_optimizers_state_is_there_after_the_loop(strategy: str) -> Result:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with paceline.Worker(model, optimizer, strategy=strategy) as worker:
        train(worker, data())
        state = optimizer.state_dict()["state"]
        inside = [len(state), float(state[0]["step"]), float(state[0]["exp_avg"].abs().sum())]
    return {"inside": inside, "closed": float(optimizer.state_dict()["state"][0]["step"])}


@scenario
def an_optimizer_trained_before_begins_as_rank_0s(strategy: str) -> Result:
    model = net()
    optimizer = sgd(model, momentum=0.9)
    for _ in range(3 if RANK == 0 else 1):
        inputs, targets = next(iter(data()))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    optimizer.zero_grad()
    with paceline.Worker(model, optimizer, strategy=strategy) as worker:
        train(worker, data())
        end = digest(model)
    state = [float(optimizer.state[p]["momentum_buffer"].sum()) for p in model.parameters()]
    return {"end": end, "state": state}


@scenario
def a_pass_inside_a_pass_is_refused(strategy: str) -> Result:
    model = net()
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        try:
            for _ in zip(worker.batches(data()), worker.batches(data()), strict=True):
                pass
        except paceline.UsageError as error:
            text = str(error)
        outcomes = train(worker, data())
        return {"text": text, "applied": all(o.applied for o in outcomes), "end": digest(model)}


@scenario
def a_weighted_loss_is_the_mean_over_its_items(strategy: str) -> Result:
    model = net()
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        for inputs, targets in worker.batches(data()):
            tokens = 1 + worker.rank * 9
            loss = nn.functional.cross_entropy(worker(inputs), targets)
            worker.step(loss, weight=tokens)
        return {"end": digest(model)}


@scenario
def batches_from_loader_workers_arrive_once(strategy: str) -> Result:
    model = net()
    seen: list[float] = []
    inputs = torch.arange(48.0).repeat_interleave(6).reshape(48, 6)
    loader = DataLoader(
        TensorDataset(inputs, torch.arange(48) % 3), batch_size=4, num_workers=2, shuffle=True
    )
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        for x, y in worker.batches(loader):
            seen.extend(x[:, 0].tolist())
            worker.step(nn.functional.cross_entropy(worker(x / 48), y))
        return {"seen": seen, "end": digest(model)}


@scenario
def dropout_differs_between_ranks(strategy: str) -> Result:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    with paceline.Worker(model, sgd(model), strategy=strategy):
        return {"draw": torch.rand(4).tolist()}


@scenario
def one_non_finite_loss_is_skipped_and_training_goes_on(strategy: str) -> Result:
    model = net()
    outcomes = []
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        for number, (inputs, targets) in enumerate(unhurried(worker.batches(data()))):
            loss = nn.functional.cross_entropy(worker(inputs), targets)
            if worker.rank == 1 and number == 1:
                loss = loss * float("nan")
            outcomes.append(worker.step(loss))
        finite = all(bool(torch.isfinite(p).all()) for p in model.parameters())
        reasons = [o.reason for o in outcomes if not o.applied]
        return {"end": digest(model), "finite": finite, "reasons": reasons}


class Explodes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        raise RuntimeError("boom")


@scenario
def a_backward_that_breaks_off_late_spoils_nothing(strategy: str) -> Result:
    """Its gradients are complete, some on their way, when it fails; the script goes on."""
    torch.manual_seed(7)
    layers = [nn.Linear(6, 1000), nn.Tanh(), nn.Linear(1000, 1100), nn.Linear(1100, 3)]
    model = nn.Sequential(*layers)  # 4 MB: two buckets
    caught, outcomes = 0, []
    with paceline.Worker(model, sgd(model), strategy=strategy) as worker:
        for number, (inputs, targets) in enumerate(unhurried(worker.batches(data()))):
            breaks = worker.rank == 1 and number == 1
            if breaks:
                inputs = Explodes.apply(inputs.requires_grad_())  # type: ignore[no-untyped-call]
            loss = nn.functional.cross_entropy(worker(inputs), targets)
            try:
                outcomes.append(worker.step(loss * 1e30 if breaks else loss))
            except RuntimeError:
                caught += 1
        largest = max(float(p.detach().abs().max()) for p in model.parameters())
        return {
            "end": digest(model),
            "largest": largest,
            "caught": caught,
            "refused": [o.reason for o in outcomes if not o.applied],
        }


@scenario
def a_compiled_model_works(strategy: str) -> Result:
    model = net()
    compiled = torch.compile(model, backend="aot_eager")
    with paceline.Worker(compiled, sgd(model), strategy=strategy) as worker:
        outcomes = train(worker, data())
        return {"end": digest(model), "applied": all(o.applied for o in outcomes)}


def main() -> None:
    out, strategy = Path(sys.argv[1]), sys.argv[2]
    chosen = sys.argv[3:] or list(SCENARIOS)
    for name in chosen:
        result = SCENARIOS[name](strategy)
        (out / f"{name}-rank{RANK}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
