"""Groups of workers, in threads: what they train is what plain loops and the flat strategies train.

``far``: members and leader talk to the server as from another host, over the loopback, in frames.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from hosts.conftest import Places
from paceline.errors import UsageError
from paceline.launch.context import Launch
from paceline.policy.grouping import check_rounds, groups_by
from paceline.strategies import parse_strategy
from paceline.worker.circle import circle_of
from paceline.worker.manifest import trainable
from paceline.worker.plane import Contribution, Outcome, PassPlan, Plane
from paceline.worker.planes import open_plane
from paceline.worker.session import Session
from paceline.worker.training import Training
from planes.toy import UNIT, batch_of, build, parameters_of

SGD = ["SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}]
State = dict[str, torch.Tensor]
ONE_AT_A_TIME = threading.Lock()
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", autouse=True)
def gloo() -> None:
    """torch's first store opens a pipe that stays with the process."""
    torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


class Seen:
    """What one worker did: batches it computed, outcomes, its parameters at the end."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.outcomes: list[Outcome] = []
        self.windows: list[tuple[int, int, list[int], Outcome]] = []
        self.parameters: State = {}
        self.progress = 0
        self.error: BaseException | None = None


def launches(places: Places, count: int, far: Sequence[int] = ()) -> list[Launch]:
    here = Launch(world_size=count, server=places.near)
    there = Launch(world_size=count, server=places.far, key=places.key)
    return [replace(there if rank in far else here, rank=rank) for rank in range(count)]


def trained(launch: Launch, seen: Seen, strategy: str, size: int | None, **cell: Any) -> None:
    session = Session.connect(launch, evict_after_s=10.0, on_beat=lambda: None)
    try:
        trained_in(session, launch, seen, strategy, size, **cell)
    finally:
        session.close("departed")  # whoever has closed its plane has left already


def trained_in(
    session: Session, launch: Launch, seen: Seen, strategy: str, size: int | None, **cell: Any
) -> None:
    with ONE_AT_A_TIME:  # all threads draw from one stream of random numbers
        model, optimizer = build(cell.pop("optimizer", SGD), seed=launch.rank)
    model.double()
    training = Training(
        model=model, optimizer=optimizer, trainables=trainable(model, optimizer),
        strategy=parse_strategy(strategy),
    )  # fmt: skip
    collectives = cell.pop("collectives", True)
    grouped = strategy.startswith("hybrid")
    circle = circle_of(session, size, collectives=collectives) if grouped else None
    plane = open_plane("hybrid" if circle else "server", training, session, circle)
    for number in range(cell.get("passes", 1)):
        one_pass(plane, model, seen, launch.rank, number, **cell)
    with plane.latest():
        pass
    plane.sync_optimizer()
    seen.progress = plane.position().progress
    plane.close("finished")
    seen.parameters = {name: value.clone() for name, value in parameters_of(model).items()}


def one_pass(
    plane: Plane, model: torch.nn.Module, seen: Seen, rank: int, number: int, *, total: int,
    window: int = 1, known: bool = True, spoiled: Sequence[tuple[int, int]] = (),
    leaves: Sequence[int] = (), split: bool = True, **_: Any,
) -> None:  # fmt: skip
    total += 0 if split else rank
    plane.open_pass(
        PassPlan(
            pass_id=number, total=total if known else None, window=window, depth=2 * window,
            weight=UNIT * window, unit=UNIT, split=split,
        )
    )  # fmt: skip
    while (granted := plane.next_window()) is not None:
        weight, unit = 0.0, granted.unit
        batches = [batch for batch in granted.batches if batch < total]
        for place, batch in enumerate(batches):
            plane.before_backward(last=place == len(granted.batches) - 1)
            bad = (rank, batch) in spoiled
            weight, unit = double_step(model, batch, weight, unit, spoiled=bad)
        seen.batches += batches
        met = total if len(batches) < len(granted.batches) else None
        part = Contribution(weight=weight, unit=unit or UNIT, total=met)
        outcome = plane.exchange(part)
        seen.outcomes.append(outcome)
        seen.windows.append((granted.clock, granted.version, batches, outcome))
        if rank in leaves:
            plane.end_pass_early()


def double_step(model: Any, batch: int, weight: float, unit: float | None, *, spoiled: bool) -> Any:
    inputs, targets = (one.double() for one in batch_of(batch))
    own = float(len(inputs))
    unit = unit or own
    loss = torch.nn.functional.mse_loss(model(inputs, batch), targets) * (own / unit)
    (loss * float("nan") if spoiled else loss).backward()
    return weight + own, unit


def run(launched: Sequence[Launch], strategy: str, size: int | None, **cell: Any) -> list[Seen]:
    everyone = [Seen() for _ in launched]

    def work(launch: Launch, seen: Seen) -> None:
        try:
            trained(launch, seen, strategy, size, **cell)
        except BaseException as error:
            seen.error = error

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(launched, everyone, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    for seen in everyone:
        if seen.error is not None:
            raise seen.error
    return everyone


def sync_loop(workers: int, window: int, total: int) -> State:
    """One undistributed worker that computes each update's batches as one."""
    model, optimizer = build(SGD, seed=0)
    model.double()
    for first in range(0, total, workers * window):
        optimizer.zero_grad()
        weight, unit = 0.0, None
        for batch in range(first, min(total, first + workers * window)):
            weight, unit = double_step(model, batch, weight, unit, spoiled=False)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(weight / (unit or 1.0))
        optimizer.step()
    return parameters_of(model)


def distance(one: State, other: State) -> float:
    """max |delta| / max |theta|, the worst over the tensors."""
    return max(float((one[n] - other[n]).abs().max() / other[n].abs().max()) for n in one)


def batches_of(everyone: Sequence[Seen]) -> list[int]:
    return sorted(batch for seen in everyone for batch in seen.batches)


@pytest.mark.parametrize(
    ("strategy", "size", "far"),
    [
        ("hybrid:async", 4, ()),
        pytest.param("hybrid:ssp:0", 2, (), marks=pytest.mark.full),
        ("hybrid:ssp:0", 2, (2, 3)),
        pytest.param("hybrid:async", 4, (0, 1, 2, 3), marks=pytest.mark.full),
    ],
)
def test_groups_that_wait_for_each_other_make_the_updates_of_sync(
    places: Places, strategy: str, size: int, far: tuple[int, ...]
) -> None:
    everyone = run(launches(places, 4, far), strategy, size, total=27, window=2)
    expected = sync_loop(4, 2, 27)
    for seen in everyone:
        assert distance(seen.parameters, expected) <= 1e-10
        assert all(torch.equal(seen.parameters[n], everyone[0].parameters[n]) for n in expected)
    assert batches_of(everyone) == list(range(27))
    assert {seen.progress for seen in everyone} == {27}


@pytest.mark.parametrize(
    ("far", "known"),
    [
        ((2, 3), True),
        ((), False),
        pytest.param((), True, marks=pytest.mark.full),
        pytest.param((2, 3), False, marks=pytest.mark.full),
    ],
)
def test_two_groups_share_out_every_batch_once(
    places: Places, far: tuple[int, ...], known: bool
) -> None:
    everyone = run(launches(places, 4, far), "hybrid:ssp:3", 2, total=41, known=known, passes=2)
    assert batches_of(everyone) == sorted([*range(41)] * 2)
    for one, other in ((0, 1), (2, 3)):
        same = [
            (a.version, a.clock, a.applied)
            for a in everyone[one].outcomes[: len(everyone[other].outcomes)]
        ]
        assert same[:5] == [(b.version, b.clock, b.applied) for b in everyone[other].outcomes][:5]
    ends = [seen.parameters for seen in everyone]
    assert all(torch.equal(end[name], ends[0][name]) for end in ends for name in end)
    assert {seen.progress for seen in everyone} == {82}


@pytest.mark.parametrize("known", [pytest.param(True, marks=pytest.mark.full), False])
def test_members_may_run_out_of_their_own_data_at_different_times(
    places: Places, known: bool
) -> None:
    everyone = run(launches(places, 4), "hybrid:async", 2, total=5, known=known, split=False)
    assert [seen.batches for seen in everyone] == [list(range(5 + rank)) for rank in range(4)]
    assert all(
        torch.equal(seen.parameters["first.weight"], everyone[0].parameters["first.weight"])
        for seen in everyone
    )


def test_workers_that_share_memory_and_workers_that_do_not_are_no_group(places: Places) -> None:
    """Two launchers on one machine: the same host by name, and the server by two ways."""
    everyone = run(launches(places, 2, (1,)), "hybrid:async", None, total=8)
    assert batches_of(everyone) == list(range(8))
    assert all(seen.outcomes for seen in everyone)


def test_and_cannot_be_made_one(places: Places) -> None:
    with pytest.raises(UsageError, match="group_size=2: ranks 0, 1"):
        run(launches(places, 2, (1,)), "hybrid:async", 2, total=8)


def test_groups_of_one_are_the_outer_strategy(places: Places) -> None:
    everyone = run(launches(places, 1), "hybrid:async", 1, total=9, window=2)
    assert distance(everyone[0].parameters, sync_loop(1, 2, 9)) <= 1e-10
    assert len(everyone[0].outcomes) == 5


def test_a_nan_of_one_member_refuses_its_groups_push_and_is_named(places: Places) -> None:
    everyone = run(launches(places, 2), "hybrid:async", 2, total=8, spoiled=[(1, 3)])
    for seen in everyone:
        assert [one.applied for one in seen.outcomes] == [True, False, True, True]
        assert "(rank 1)" in seen.outcomes[1].reason
    assert torch.equal(
        everyone[0].parameters["first.weight"], everyone[1].parameters["first.weight"]
    )


@pytest.mark.parametrize(
    "leaves",
    [(1,), (2, 3), *(pytest.param(one, marks=pytest.mark.full) for one in ((0,), (0, 1, 2, 3)))],
)
def test_members_that_break_off_hold_nobody_up(places: Places, leaves: tuple[int, ...]) -> None:
    everyone = run(launches(places, 4), "hybrid:async", 2, total=24, leaves=leaves)
    for seen in everyone:
        assert torch.equal(seen.parameters["first.weight"], everyone[0].parameters["first.weight"])
    computed = batches_of(everyone)
    assert len(set(computed)) == len(computed)
    if len(leaves) == 2 and leaves[0] // 2 == leaves[1] // 2:
        assert len(computed) >= 22, "the other group takes over"


def test_half_the_bytes_of_flat_async_cross_between_hosts(places: Places) -> None:
    """Two of four workers are on the other host: there one push and one pull serve both."""
    grouped = run(launches(places, 4, (2, 3)), "hybrid:async", 2, total=24)
    model_bytes = max(one.received_bytes for one in grouped[2].outcomes)
    assert not any(one.sent_bytes + one.received_bytes for one in grouped[3].outcomes)
    steps = len(grouped[2].outcomes)
    assert sum(one.received_bytes for one in grouped[2].outcomes) == steps * model_bytes
    assert len(grouped[2].batches) + len(grouped[3].batches) == 2 * steps


def test_two_groups_are_two_workers_of_a_naive_loop(places: Places) -> None:
    """receive, subtract, reply: by the leaders' versions and lags, with each group's batches as one."""
    plain = ["SGD", {"lr": 0.05}]
    everyone = run(launches(places, 4), "hybrid:async:sum", 2, total=30, optimizer=plain, window=2)
    pushes = {}
    for leader, member in ((0, 1), (2, 3)):
        mine = {clock: batches for clock, _, batches, _ in everyone[member].windows}
        for clock, version, batches, outcome in everyone[leader].windows:
            pushes[version + outcome.lag + 1] = (version, [*batches, *mine.get(clock, ())])
    assert sorted(pushes) == list(range(1, 9))
    assert sum(one.lag for leader in (0, 2) for one in everyone[leader].outcomes) > 0
    model, _ = build(plain, seed=0)
    model.double()
    versions = [clone_of(model)]
    for number in sorted(pushes):
        started, batches = pushes[number]
        model.load_state_dict(versions[started])
        gradients = mean_gradient(model, batches)
        now = {name: value.clone() for name, value in versions[-1].items()}
        for name, gradient in gradients.items():
            now[name] -= 0.05 * gradient
        versions.append(now)
    for seen in everyone:
        assert distance(seen.parameters, versions[-1]) <= 1e-10


def clone_of(model: torch.nn.Module) -> State:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def mean_gradient(model: Any, batches: Sequence[int]) -> State:
    model.zero_grad()
    weight, unit = 0.0, None
    for batch in batches:
        weight, unit = double_step(model, batch, weight, unit, spoiled=False)
    named = model.named_parameters()
    return {n: p.grad / (weight / (unit or 1.0)) for n, p in named if p.grad is not None}


def test_groups_are_nodes_or_of_a_given_size() -> None:
    assert groups_by(["a", "a", "b", "b"], None) == ((0, 1), (2, 3))
    assert groups_by(["a", "b", "a"], None) == ((0, 2), (1,))
    assert groups_by(["a"] * 4, 2) == ((0, 1), (2, 3))
    with pytest.raises(UsageError, match="Use a divisor of 4"):
        groups_by(["a"] * 4, 3)
    with pytest.raises(UsageError, match="ranks 0, 1 are on different hosts"):
        groups_by(["a", "b"], 2)
    check_rounds(((0, 1), (2,)), parse_strategy("hybrid:async"))
    with pytest.raises(UsageError, match="groups of 1 and 2 workers cannot work together"):
        check_rounds(((0, 1), (2,)), parse_strategy("hybrid:ssp:0"))


def test_members_of_one_process_meet_through_the_server(places: Places) -> None:
    """As in virtual time, where torch joins nobody; each group by itself."""
    everyone = run(launches(places, 4), "hybrid:ssp:0", 2, total=27, window=2, collectives=False)
    expected = sync_loop(4, 2, 27)
    assert all(distance(seen.parameters, expected) <= 1e-10 for seen in everyone)


def test_and_hold_up_nobody_when_one_breaks_off(places: Places) -> None:
    everyone = run(launches(places, 4), "hybrid:async", 2, total=24, collectives=False, leaves=(1,))
    assert batches_of(everyone) == sorted(set(batches_of(everyone)))
    ends = [seen.parameters["first.weight"] for seen in everyone]
    assert all(torch.equal(end, ends[0]) for end in ends)


def test_nodes_may_have_unequally_many_workers(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.worker.circle.groups_by", lambda *_: ((0, 1), (2,)))
    everyone = run(launches(places, 3), "hybrid:async", None, total=30, passes=2)
    assert batches_of(everyone) == sorted([*range(30)] * 2)
    ends = [seen.parameters for seen in everyone]
    assert all(torch.equal(end[name], ends[0][name]) for end in ends for name in end)
    assert {seen.progress for seen in everyone} == {60}
