"""Workers under each strategy, against the numbers of plain torch and the course's loops."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline import events, trace
from paceline.policy import Coordinator
from paceline.strategies import parse_strategy
from paceline.transport import messages
from server.stand_in import StandIn, observe

SHAPES = ((4, 3), (4,), (2, 3, 2, 2))


def tensors(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator) for shape in SHAPES]
    made[2] = made[2].to(memory_format=torch.channels_last)
    return made


def gradients(rank: int, step: int) -> list[torch.Tensor]:
    return tensors(1000 * rank + step + 1)


def opened(
    near_server: str, count: int, strategy: str, *, evict_after_s: float = 10.0, **options: Any
) -> list[StandIn]:
    """``count`` workers with the plane open; only rank 0's initial parameters count."""
    workers = [
        StandIn(near_server, rank, count, evict_after_s=evict_after_s) for rank in range(count)
    ]
    for worker in workers:
        worker.data.send(worker.opening(tensors(-worker.rank), strategy, **options))
    for worker in workers:
        reply = worker.hear(30.0)
        assert isinstance(reply, messages.Opened), reply
        assert (reply.version, reply.clock) == (0, 0)
    return workers


def until_ended(address: str) -> None:
    """Wait until the server has written everything and is gone."""
    by_s = time.monotonic() + 10.0
    while Path(address).exists() and time.monotonic() < by_s:
        time.sleep(0.01)
    assert not Path(address).exists()


def facts(directory: Path) -> list[trace.Record]:
    with (directory / "server.jsonl").open("rb") as lines:
        return list(trace.decode_lines(lines))


def assert_parameters(worker: StandIn, wanted: Sequence[torch.Tensor]) -> None:
    for got, want in zip(worker.parameters, wanted, strict=True):
        assert torch.equal(got, want)


def start(worker: StandIn) -> Any:
    return worker.ask(messages.Ready())


def at_once(workers: list[StandIn], action: Callable[[StandIn], Any]) -> list[Any]:
    """Each worker does ``action`` in a thread of its own; what they return, in rank order."""
    results: list[Any] = [None] * len(workers)

    def run(worker: StandIn) -> None:
        results[worker.rank] = action(worker)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    return results


@pytest.mark.parametrize("strategy", ["sync:server", "ssp:0"])
@pytest.mark.parametrize(
    ("optimizer", "clip_norm"),
    [(("SGD", {"lr": 0.1, "momentum": 0.9}), None), (("AdamW", {"lr": 0.01}), 0.5)],
)
def test_rounds_are_the_rank_order_mean(
    near_server: str, strategy: str, optimizer: tuple[str, dict], clip_norm: float | None
) -> None:
    steps, count = 4, 3
    workers = opened(near_server, count, strategy, optimizer=optimizer, clip_norm=clip_norm)

    def train(worker: StandIn) -> list[Any]:
        worker.open_pass(steps * count)
        decided = []
        for step in range(steps):
            assert start(worker).batches == [step * count + worker.rank]
            decided.append(worker.push(gradients(worker.rank, step)))
        assert start(worker) == ended(worker, version=steps, clock=steps, progress=steps * count)
        return decided

    decided = at_once(workers, train)
    parameters = tensors(0)
    reference = getattr(torch.optim, optimizer[0])(parameters, **optimizer[1])
    norms = []
    for step in range(steps):
        pushes = [gradients(rank, step) for rank in range(count)]
        for parameter, first, second, third in zip(parameters, *pushes, strict=True):
            parameter.grad = (first + second + third) / 3
        bound = float("inf") if clip_norm is None else clip_norm
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, bound)))
        reference.step()
    for worker in workers:
        assert_parameters(worker, parameters)
        replies = decided[worker.rank]
        wanted = norms if clip_norm is not None else pytest.approx(norms, rel=1e-6)
        assert [reply.norm for reply in replies] == wanted
        assert [(reply.applied, reply.version, reply.lag) for reply in replies] == [
            (True, step + 1, 0) for step in range(steps)
        ]
        worker.leave()


def ended(worker: StandIn, **wanted: int) -> Any:
    """An Ended with these counts, whatever its times."""

    class Matches:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, messages.Ended) and all(
                getattr(other, name) == value for name, value in wanted.items()
            )

        def __repr__(self) -> str:
            return f"Ended({wanted}) of rank {worker.rank}"

    return Matches()


def test_async_sum_is_the_textbook_loop_in_the_recorded_order(
    near_server: str, directory: Path
) -> None:
    count, total = 3, 24
    workers = opened(near_server, count, "async:sum", optimizer=("SGD", {"lr": 0.05}))

    def train(worker: StandIn) -> int:
        worker.open_pass(total)
        pushes = 0
        while isinstance(start(worker), messages.Started):
            assert worker.push(gradients(worker.rank, pushes)).applied
            pushes += 1
        return pushes

    pushes = at_once(workers, train)
    assert sum(pushes) == total
    for worker in workers:
        worker.leave()
    until_ended(near_server)
    parameters, done = tensors(0), [0] * count
    updates = [one for one in facts(directory) if isinstance(one, events.Update)]
    assert [update.version for update in updates] == list(range(1, total + 1))
    for update in updates:
        [rank] = update.ranks
        for parameter, gradient in zip(parameters, gradients(rank, done[rank]), strict=True):
            parameter.add_(gradient, alpha=-0.05)
        done[rank] += 1
    assert done == pushes
    for worker in workers:
        worker_parameters = worker.parameters
        for got, want in zip(worker_parameters, parameters, strict=True):
            assert torch.equal(got, want)


def test_async_mean_scales_the_learning_rate(near_server: str) -> None:
    first, second = opened(near_server, 2, "async", optimizer=("SGD", {"lr": 0.5}))
    for worker in (first, second):
        worker.open_pass(4)
    assert start(first).batches == [0]
    decided = first.push(gradients(0, 0))
    assert (decided.applied, decided.version, decided.clock, decided.lag) == (True, 1, 1, 0)
    started = start(second)
    assert started.version == 1
    parameters = tensors(0)
    for parameter, gradient in zip(parameters, gradients(0, 0), strict=True):
        parameter.add_(gradient, alpha=-0.5 * 0.5)
    assert_parameters(second, parameters)
    for worker in (first, second):
        worker.leave("departed")


def test_the_leader_waits_behind_the_gate_until_the_slowest_is_near(near_server: str) -> None:
    leader, slow = opened(near_server, 2, "ssp:1")
    for worker in (leader, slow):
        worker.open_pass(10)
    assert start(slow).clock == 0
    for clock in range(2):
        assert start(leader).clock == clock
        leader.push(gradients(0, clock))
    leader.data.send(messages.Ready())
    with pytest.raises(TimeoutError):
        leader.hear(0.2)
    slow.push(gradients(1, 0))
    started = leader.hear(5.0)
    assert (started.clock, started.version) == (2, 3)
    assert started.waited_s > 0.05
    for worker in (leader, slow):
        worker.leave("departed")


def test_a_late_backup_push_is_dropped_and_its_worker_goes_on_with_the_round(
    near_server: str,
) -> None:
    workers = opened(near_server, 3, "backup:1")
    for worker in workers:
        worker.open_pass(9)
    for worker in workers:
        start(worker)
    first, second, late = workers
    first.fill(gradients(0, 0))
    first.data.send(first.pushing(gradients(0, 0)))
    assert second.push(gradients(1, 0)).applied
    assert first.hear(5.0).version == 1
    dropped = late.push(gradients(2, 0))
    assert (dropped.applied, dropped.kind, dropped.clock, dropped.norm) == (False, "late", 1, None)
    assert start(late).version == 1
    for worker in workers:
        worker.leave("departed")


def test_a_round_with_a_bad_push_is_skipped_by_all_naming_rank_and_parameter(
    near_server: str, directory: Path
) -> None:
    seen = observe(near_server, 2)
    workers = opened(near_server, 2, "sync:server")
    for step in range(3):
        for worker in workers:
            if step == 0:
                worker.open_pass(6)
        if step == 0:
            for worker in workers:
                worker.data.send(messages.Ready())
            for worker in workers:
                assert isinstance(worker.hear(5.0), messages.Started)
        for worker in workers:
            worker.fill(gradients(worker.rank, step))
            bad = "p1" if worker.rank == 1 and step < 2 else ""
            worker.data.send(worker.pushing(gradients(worker.rank, step), bad=bad))
        for worker in workers:
            decided = worker.hear(5.0)
            assert decided.applied == (step == 2)
            assert decided.version == (1 if step == 2 else 0)
            assert decided.clock == step + 1
            assert decided.next is None or decided.next.clock == step + 1
            if step < 2:
                assert decided.kind == "non-finite"
                assert "rank 1: 'p1'" in decided.reason
    for worker in workers:
        worker.leave()
    until_ended(near_server)
    notes = [one for one in facts(directory) if isinstance(one, trace.Note)]
    assert [note.rank for note in notes if note.kind == "non-finite"] == [1, 1]
    [summary] = [note.text for note in notes if note.kind == "info"]
    assert summary.startswith("2 pushes of rank 1 were refused as not finite, at most 2 in a row")
    shown = [seen.receive(5.0) for _ in range(3)]
    assert "'p1'" in shown[2].text
    seen.close()


def test_a_bad_push_is_refused_alone_where_pushes_stand_alone(near_server: str) -> None:
    first, second = opened(near_server, 2, "async")
    for worker in (first, second):
        worker.open_pass(4)
        start(worker)
    refused = first.push(gradients(0, 0), bad="p0")
    assert (refused.applied, refused.kind, refused.clock) == (False, "non-finite", 1)
    assert "rank 0: 'p0'" in refused.reason
    assert second.push(gradients(1, 0)).applied
    for worker in (first, second):
        worker.leave("departed")


def test_a_joint_gradient_that_overflows_is_skipped_but_counts_as_a_version(
    near_server: str,
) -> None:
    workers = opened(near_server, 2, "sync:server")
    huge = [torch.full(shape, 3e38) for shape in SHAPES]

    def train(worker: StandIn) -> Any:
        worker.open_pass(2)
        start(worker)
        decided = worker.push(huge)
        start(worker)
        return decided

    for worker, decided in zip(workers, at_once(workers, train), strict=True):
        assert (decided.applied, decided.kind, decided.version) == (False, "non-finite", 1)
        assert_parameters(worker, tensors(0))
        worker.leave()


def test_hyper_parameters_come_with_a_push(near_server: str) -> None:
    [only] = opened(near_server, 1, "sync:server", optimizer=("SGD", {"lr": 0.5}))
    only.open_pass(2)
    start(only)
    only.push(gradients(0, 0), groups=[{"lr": 0.25, "momentum": 0.0}])
    start(only)
    parameters = tensors(0)
    for parameter, gradient in zip(parameters, gradients(0, 0), strict=True):
        parameter.add_(gradient, alpha=-0.25)
    assert_parameters(only, parameters)
    only.leave("departed")


def test_state_and_the_latest_version_can_be_read_at_any_time(near_server: str) -> None:
    first, second = opened(near_server, 2, "async:sum", optimizer=("Adam", {"lr": 0.1}))
    for worker in (first, second):
        worker.open_pass(4)
        start(worker)
    first.push(gradients(0, 0))
    assert second.ask(messages.Read()).version == 1
    parameters = tensors(0)
    optimizer = torch.optim.Adam(parameters, lr=0.1)
    for parameter, gradient in zip(parameters, gradients(0, 0), strict=True):
        parameter.grad = gradient
    optimizer.step()
    assert_parameters(second, parameters)
    state = torch.load(io.BytesIO(second.ask(messages.Fetch()).state), weights_only=True)
    for index, wanted in optimizer.state_dict()["state"].items():
        for name, value in wanted.items():
            assert torch.equal(state["state"][index][name], value)
    assert state["param_groups"][0]["params"] == [0, 1, 2]
    assert second.push(gradients(1, 0)).lag == 1
    for worker in (first, second):
        worker.leave("departed")


def test_training_starts_from_the_state_that_the_optimizer_had(near_server: str) -> None:
    parameters = tensors(0)
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for parameter, gradient in zip(parameters, gradients(0, 7), strict=True):
        parameter.grad = gradient
    optimizer.step()
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    only = StandIn(near_server, 0, 1)
    spec = ("SGD", {"lr": 0.1, "momentum": 0.9})
    only.ask(only.opening(parameters, "sync", optimizer=spec, state=buffer.getvalue()), 30.0)
    only.open_pass(1)
    start(only)
    only.push(gradients(0, 8))
    start(only)
    for parameter, gradient in zip(parameters, gradients(0, 8), strict=True):
        parameter.grad = gradient
    optimizer.step()
    assert_parameters(only, parameters)
    only.leave()


def test_a_stream_ends_where_a_worker_says_so(near_server: str) -> None:
    [only] = opened(near_server, 1, "async")
    assert only.open_pass(None) == [0]
    start(only)
    assert only.push(gradients(0, 0), total=1).applied
    assert isinstance(start(only), messages.Ended)
    only.leave()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"optimizer": ("LBFGS", {"lr": 1.0})}, "LBFGS"),
        ({"optimizer": ("Mine", {"lr": 1.0})}, "expected a class of torch.optim"),
        ({"of_group": [0, 1, 0], "optimizer": ("SGD", [{"lr": 1.0}] * 2)}, "groups="),
        ({"state": b"\x80\x02cos\nsystem\nq\x00."}, "cannot be opened"),
    ],
)
def test_what_cannot_be_opened_is_refused_on_all_ranks(
    near_server: str, change: dict[str, Any], why: str
) -> None:
    workers = [StandIn(near_server, rank, 2) for rank in range(2)]
    for worker in workers:
        worker.data.send(worker.opening(tensors(0), "async", **change))
    for worker in workers:
        stop = worker.hear(30.0)
        assert stop.kind == "refused"
        assert why in stop.text
        worker.leave("departed")


def test_a_region_of_another_size_is_never_mapped(near_server: str) -> None:
    only = StandIn(near_server, 0, 1)
    opening = only.opening(tensors(0), "async")
    smaller = [tensor for tensor in opening.manifest if tensor.name != "p2"]
    only.data.send(messages.msgspec.structs.replace(opening, manifest=smaller))
    stop = only.hear(30.0)
    assert stop.kind == "refused"
    assert "region_bytes" in stop.text
    only.leave("departed")


def test_everything_decided_is_recorded_in_serial_order(near_server: str, directory: Path) -> None:
    workers = opened(near_server, 2, "ssp:1")

    def train(worker: StandIn) -> None:
        worker.open_pass(6)
        while isinstance(start(worker), messages.Started):
            worker.push(gradients(worker.rank, 0), weight=1 / 3)
            worker.beat()

    at_once(workers, train)
    for worker in workers:
        worker.leave()
    until_ended(near_server)
    replay = Coordinator(strategy=parse_strategy("ssp:1"), world_size=2)
    records = [one for one in facts(directory) if not isinstance(one, trace.Note | trace.Header)]
    assert not [one for one in records if isinstance(one, events.Tick | events.WakeAt)]
    while records:
        fact = records.pop(0)
        for order in replay.feed(fact):  # type: ignore[arg-type]
            assert records.pop(0) == order


def test_sixty_four_workers_join_train_and_leave(near_server: str) -> None:
    count, steps = 64, 3
    workers = opened(near_server, count, "ssp:3")

    def train(worker: StandIn) -> None:
        worker.open_pass(count * steps)
        while isinstance(start(worker), messages.Started):
            assert worker.push(gradients(0, 0)).applied
        worker.leave()

    at_once(workers, train)


def test_rounds_summed_ahead_have_the_bits_of_those_that_are_not(near_server: str) -> None:
    workers = opened(near_server, 2, "sync:server", optimizer=("SGD", {"lr": 0.1}))
    parameters = tensors(0)

    def train(worker: StandIn) -> None:
        worker.open_pass(6)
        for step in range(3):
            start(worker)
            own = gradients(worker.rank, step)
            worker.fill(own)
            for filled in range(1, 1 + step):
                worker.data.send(messages.Filled(buckets=filled))
            assert worker.ask(worker.pushing(own)).applied

    at_once(workers, train)
    for step in range(3):
        both = zip(parameters, gradients(0, step), gradients(1, step), strict=True)
        for parameter, first, second in both:
            parameter.add_((first + second) / 2, alpha=-0.1)
    for worker in workers:
        assert_parameters(worker, parameters)
        worker.leave()


def test_a_backward_that_breaks_off_half_sent_spoils_its_round_and_no_other(
    near_server: str,
) -> None:
    workers = opened(near_server, 2, "sync:server", optimizer=("SGD", {"lr": 0.1}))

    def train(worker: StandIn) -> list[Any]:
        worker.open_pass(4)
        decided = []
        for step in range(2):
            start(worker)
            own = gradients(worker.rank, step)
            worker.fill(own)
            worker.data.send(messages.Filled(buckets=1))
            broke_off = worker.rank == 1 and step == 0
            decided.append(worker.ask(worker.pushing(own, 0.0 if broke_off else 1.0)))
        return decided

    decided = at_once(workers, train)
    parameters = tensors(0)
    for parameter, first, second in zip(parameters, gradients(0, 1), gradients(1, 1), strict=True):
        parameter.add_((first + second) / 2, alpha=-0.1)
    for worker in workers:
        spoiled, applied = decided[worker.rank]
        assert (spoiled.applied, spoiled.kind, applied.applied) == (False, "non-finite", True)
        assert "broke off, half sent" in spoiled.reason
        assert_parameters(worker, parameters)
        worker.leave()


def test_an_emulated_server_takes_up_one_push_after_the_other(near_server: str) -> None:
    """Two pushes at once, each of which keeps it busy: the second one waits for the first."""
    busy_s = 0.15
    workers = opened(near_server, 2, "async", serving_s=busy_s)
    for worker in workers:
        worker.open_pass(2)
    at_once(workers, start)
    began_s = time.monotonic()
    decided = at_once(workers, lambda worker: worker.push(gradients(worker.rank, 0)))
    waited_s = sorted(one.waited_s for one in decided)
    assert waited_s[0] >= busy_s
    assert waited_s[1] >= 2 * busy_s - (time.monotonic() - began_s - waited_s[1])
    assert sorted(one.version for one in decided) == [1, 2]
    for worker in workers:
        worker.leave()
