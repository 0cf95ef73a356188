"""Planes of local SGD and DiLoCo, one a thread, against loops over replicas that anybody would write."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from local_sgd.threads import Rank, played
from local_sgd.toy import maker, naive, sync
from paceline.worker.averaging import OUTER_MOMENTUM
from paceline.worker.plane import Window

SGD = maker("SGD", lr=0.1)
MOMENTUM = maker("SGD", lr=0.05, momentum=0.9, weight_decay=0.01)
NESTEROV = maker("SGD", lr=0.05, momentum=0.9, nesterov=True)
ADAMW = maker("AdamW", lr=0.01)
UNEVEN = {"window": 2, "total": 23, "world": 3, "passes": 2}  # a last window of 2, 2 and 1 batches
pytestmark = pytest.mark.usefixtures("one_thread")


def parameters(rank: Rank) -> list[torch.Tensor]:
    return [p.detach() for p in rank.model.parameters()]


def far(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """max |delta| / max |theta|, the worst of the tensors."""
    pairs = zip(one, other, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def alike(ranks: list[Rank]) -> bool:
    """To the last bit."""
    first = parameters(ranks[0])
    return all(
        torch.equal(a, b) for one in ranks for a, b in zip(parameters(one), first, strict=True)
    )


@pytest.mark.parametrize("make", [SGD, MOMENTUM, ADAMW], ids=["sgd", "momentum", "adamw"])
@pytest.mark.parametrize("every", [1, 3])
def test_local_steps_and_a_mean_every_h_windows(make: Any, every: int) -> None:
    ranks = played(strategy=f"local:{every}", make=make, **UNEVEN)
    assert alike(ranks)
    assert far(parameters(ranks[0]), naive(make, every=every, **UNEVEN)) <= 1e-12


@pytest.mark.parametrize(
    ("word", "outer"), [("diloco:2", (0.7, 0.9)), ("diloco:3:0.5:0", (0.5, 0.0))]
)
def test_diloco_is_an_outer_nesterov_step(word: str, outer: tuple[float, float]) -> None:
    ranks = played(strategy=word, make=ADAMW, **UNEVEN)
    assert alike(ranks)
    every = int(word.split(":")[1])
    assert far(parameters(ranks[0]), naive(ADAMW, every=every, outer=outer, **UNEVEN)) <= 1e-12


def test_under_diloco_a_learning_rate_of_zero_leaves_the_outer_momentum_alone_to_move() -> None:
    """Replicas stand still: the outer gradient is 0, and Nesterov's step of that is lr m v, v <- m v."""
    lr, momentum = 0.7, 0.9

    def freeze(rank: Rank, window: Window) -> None:
        if window.clock == 4:
            begun[rank.rank] = parameters(rank)[0].clone()
            own = rank.plane.own_state()["optimizer"]["0.weight"]
            velocity[rank.rank] = own[OUTER_MOMENTUM].clone()
            for group in rank.optimizer.param_groups:
                group["lr"] = 0.0

    begun: dict[int, torch.Tensor] = {}
    velocity: dict[int, torch.Tensor] = {}
    work = {"total": 8, "world": 2, "passes": 2}
    ranks = played(strategy="diloco:2", make=SGD, at_window=freeze, **work)
    expected, v = begun[0], velocity[0]
    for _ in range(2):
        v = momentum * v
        expected = expected - lr * momentum * v
    assert far([parameters(ranks[0])[0]], [expected]) <= 1e-12
    still = played(strategy="diloco:2", make=maker("SGD", lr=0.0), **work)
    assert all(torch.equal(a, b) for a, b in zip(parameters(still[0]), _start(SGD), strict=True))


def test_each_rank_clips_its_own_gradient() -> None:
    ranks = played(strategy="local:2", make=SGD, training={"clip_norm": 0.3}, **UNEVEN)
    assert far(parameters(ranks[0]), naive(SGD, every=2, clip_norm=0.3, **UNEVEN)) <= 1e-12


def test_local_1_is_sync_up_to_rounding_where_the_optimizer_is_linear() -> None:
    """Plain SGD always; with momentum while all windows have the same weight (of each window's three
    batches one has 3, 4 and 5 samples: so three of them); never under Adam."""
    equal = {"window": 3, "total": 36, "world": 4}
    unequal = {"window": 1, "total": 11, "world": 3}
    assert _from_sync(SGD, equal) <= 1e-12
    assert _from_sync(SGD, unequal) <= 1e-12
    assert _from_sync(MOMENTUM, equal) <= 1e-12
    assert _from_sync(NESTEROV, equal) <= 1e-12
    assert _from_sync(MOMENTUM, unequal) > 1e-6
    assert _from_sync(ADAMW, equal) > 1e-6


def _from_sync(make: Any, work: dict[str, int]) -> float:
    ranks = played(strategy="local:1", make=make, **work)
    return far(parameters(ranks[0]), sync(make, **work))


def test_a_nan_is_skipped_by_its_rank_alone() -> None:
    spoiled = ((1, 4),)
    ranks = played(strategy="local:2", make=MOMENTUM, spoiled=spoiled, total=12, world=3)
    oracle = naive(MOMENTUM, every=2, window=1, total=12, world=3, spoiled=spoiled)
    assert alike(ranks)
    assert far(parameters(ranks[0]), oracle) <= 1e-12
    assert [[one.skipped for one in rank.outcomes].count(True) for rank in ranks] == [0, 1, 0]
    reason = ranks[1].outcomes[1].reason
    assert "not finite on rank 1" in reason
    assert ranks[0].plane.position().progress == 11


def test_a_replica_that_is_lost_takes_the_others_mean() -> None:
    def ruin(rank: Rank, window: Window) -> None:
        if rank.rank == 2 and window.clock == 1:
            with torch.no_grad():
                next(rank.model.parameters())[0, 0] = math.inf

    ranks = played(strategy="local:2", make=SGD, total=12, world=3, at_window=ruin)
    assert alike(ranks)
    assert all(bool(p.isfinite().all()) for p in parameters(ranks[2]))


def test_a_round_in_which_nothing_was_applied_changes_nothing() -> None:
    everything = tuple((rank, batch) for rank in range(2) for batch in range(8))
    for word in ("local:2", "diloco:2"):
        ranks = played(strategy=word, make=SGD, total=8, world=2, spoiled=everything)
        assert all(
            torch.equal(a, b) for a, b in zip(parameters(ranks[0]), _start(SGD), strict=True)
        )
        assert ranks[0].plane.position().version == 0


def _start(make: Any) -> list[torch.Tensor]:
    return [p.detach() for p in make(0)[0].parameters()]


ENDINGS: dict[str, dict[str, Any]] = {
    "a stream": {"known": False, "total": 11},
    "a stream of whole rounds": {"known": False, "total": 12},
    "data of their own": {"totals": (2, 9, 5)},
    "one leaves": {"leaves": {1: 1}},
    "all leave": {"leaves": {0: 1, 1: 2, 2: 0}},
    "fewer batches than ranks": {"total": 2},
}


@pytest.mark.parametrize("how", ENDINGS.values(), ids=ENDINGS.keys())
@pytest.mark.parametrize("word", ["local:2", "diloco:3", "local:inf"])
def test_ranks_that_end_at_different_times_never_hang(word: str, how: dict[str, Any]) -> None:
    ranks = played(**{"strategy": word, "make": SGD, "total": 11, "passes": 2, "window": 1, **how})
    assert alike(ranks) == (word != "local:inf")
    assert len({rank.plane.position() for rank in ranks}) == 1
    assert all(rank.plane.settled == (word != "local:inf") for rank in ranks)


def test_a_stop_is_agreed_at_the_next_exchange() -> None:
    ranks = played(strategy="local:3", make=SGD, total=60, stops={1: 1})
    assert [len(rank.outcomes) for rank in ranks] == [3, 3, 3]
    assert alike(ranks)


def test_a_stop_under_local_inf_is_the_ranks_own() -> None:
    ranks = played(strategy="local:inf", make=SGD, total=30, stops={1: 1})
    assert [len(rank.outcomes) for rank in ranks] == [10, 2, 10]


def test_bytes_are_sent_by_every_hth_window_only() -> None:
    ranks = played(strategy="local:4", make=SGD, total=48, world=3)
    sent = [one.sent_bytes for one in ranks[0].outcomes]
    assert [n for n, one in enumerate(sent) if one] == [3, 7, 11, 15]
    model_bytes = sum(p.numel() * p.itemsize for p in parameters(ranks[0]))
    ballot_bytes = 3 * 6 * 8
    assert set(sent) == {0, model_bytes + ballot_bytes}


def test_windows_say_whether_they_end_with_an_exchange() -> None:
    said: list[bool] = []

    def look(rank: Rank, window: Window) -> None:
        if rank.rank == 1:
            said.append(window.exchanges)

    played(strategy="local:3", make=SGD, total=15, world=3, at_window=look)
    assert said == [False, False, True, False, True]


def test_between_exchanges_the_latest_model_is_what_the_last_one_left() -> None:
    seen: dict[int, list[list[torch.Tensor]]] = {0: [], 1: []}

    def look(rank: Rank, window: Window) -> None:
        own = [p.clone() for p in parameters(rank)]
        with rank.plane.latest():
            seen[rank.rank].append([p.clone() for p in parameters(rank)])
        assert all(torch.equal(a, b) for a, b in zip(own, parameters(rank), strict=True))

    played(strategy="local:2", make=MOMENTUM, total=8, world=2, at_window=look)
    for mine, theirs in zip(seen[0], seen[1], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert torch.equal(seen[0][0][0], seen[0][1][0]), "of one round"
    assert not torch.equal(seen[0][1][0], seen[0][2][0])


def test_progress_follows_the_schedule_and_is_put_right_at_the_exchange() -> None:
    ranks = played(strategy="local:2", make=SGD, total=12, world=3, spoiled=((1, 1),))
    assert [one.progress for one in ranks[0].outcomes] == [3, 5, 8, 11]
    assert [one.progress for one in ranks[1].outcomes] == [3, 5, 8, 11]
    assert [one.version for one in ranks[0].outcomes] == [1, 2, 3, 4]


def test_drift_is_the_distance_from_the_mean() -> None:
    ranks = played(strategy="local:inf", make=SGD, total=12, world=3, passes=2)
    own = [torch.cat([p.flatten() for p in parameters(rank)]) for rank in ranks]
    weights = (3, 4, 5)  # samples in each of a rank's batches
    mean = sum(weight * vector for weight, vector in zip(weights, own, strict=True)) / sum(weights)
    for rank, vector in zip(ranks, own, strict=True):
        drift = rank.drifts[-1]
        assert drift.size == pytest.approx(float(mean.norm()), rel=1e-12)
        assert drift.distance == pytest.approx(float((vector - mean).norm()), rel=1e-12)
        assert drift.distance > rank.drifts[0].distance
        assert sum(one.sent_bytes > 0 for one in rank.outcomes) == 2, "measured once a pass"


@pytest.mark.parametrize("word", ["local:2", "diloco:2"])
def test_who_goes_on_from_a_checkpoint_makes_the_same_bits(word: str) -> None:
    whole = played(strategy=word, make=MOMENTUM, total=12, world=2, passes=2)
    first = played(strategy=word, make=MOMENTUM, total=12, world=2)

    def go_on(rank: Rank) -> None:
        before = first[rank.rank]
        rank.model.load_state_dict(before.model.state_dict())
        own = before.plane.own_state()["optimizer"]
        assert (OUTER_MOMENTUM in own["0.weight"]) == word.startswith("diloco")
        for name, parameter in rank.model.named_parameters():
            rank.optimizer.state[parameter] = {key: v.clone() for key, v in own[name].items()}

    ranks = played(
        strategy=word, make=MOMENTUM, total=12, world=2, begin=go_on,
        training={"version": 6, "progress": 12},
    )  # fmt: skip
    assert all(
        torch.equal(a, b) for a, b in zip(parameters(ranks[0]), parameters(whole[0]), strict=True)
    )


def test_sixteen_bit_parameters_follow_their_masters() -> None:
    def make(rank: int) -> Any:
        model, _ = SGD(rank)
        model.bfloat16()
        return model, torch.optim.SGD(model.parameters(), lr=2e-4)

    ranks = played(strategy="local:4", make=make, total=72, world=2)
    assert alike(ranks)
    assert parameters(ranks[0])[0].dtype == torch.bfloat16
    moved = [(a != b).any() for a, b in zip(parameters(ranks[0]), _start(make), strict=True)]
    assert any(moved), "updates below half a unit in the last place add up, also over exchanges"
