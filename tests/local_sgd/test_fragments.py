"""DiLoCo in fragments (Streaming DiLoCo): planes as threads, against a loop over replicas."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from local_sgd.streaming import flat, streaming
from local_sgd.threads import Rank, played
from local_sgd.toy import maker
from paceline.strategies import parse_strategy
from paceline.worker.averaging import OUTER_MOMENTUM
from paceline.worker.plane import Window
from paceline.worker.replica_state import left_behind
from paceline.worker.round_vote import ballot_bytes

MOMENTUM = maker("SGD", lr=0.05, momentum=0.9, weight_decay=0.01)
ADAMW = maker("AdamW", lr=0.01)
UNEVEN = {
    "window": 2,
    "total": 53,
    "world": 3,
    "passes": 2,
}  # 9 updates; the last of 2, 2, 1 batches
pytestmark = pytest.mark.usefixtures("one_thread")


def vector(rank: Rank) -> torch.Tensor:
    return flat(rank.model, rank.optimizer)


def alike(ranks: list[Rank]) -> bool:
    """To the last bit."""
    return all(torch.equal(vector(one), vector(ranks[0])) for one in ranks)


def far(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


@pytest.mark.parametrize(
    ("word", "outer", "every", "fragments"),
    [
        ("diloco:4:0.7:0.9:2", (0.7, 0.9), 4, 2),
        ("diloco:6:0.5:0.8:3", (0.5, 0.8), 6, 3),
        ("diloco:4:1:0:4", (1.0, 0.0), 4, 4),
        ("diloco:60:0.7:0.9:2", (0.7, 0.9), 60, 2),
    ],
)
@pytest.mark.parametrize("make", [MOMENTUM, ADAMW], ids=["momentum", "adamw"])
def test_fragments_meet_in_turn_and_all_as_a_pass_ends(
    make: Any, word: str, outer: tuple[float, float], every: int, fragments: int
) -> None:
    ranks = played(strategy=word, make=make, **UNEVEN)
    oracle = streaming(make, every=every, fragments=fragments, outer=outer, **UNEVEN)
    assert alike(ranks)
    assert far(vector(ranks[0]), oracle.common) <= 1e-12


def test_a_window_that_is_skipped_counts_in_no_fragment() -> None:
    how = {"total": 24, "world": 3, "spoiled": ((1, 4), (2, 11), (0, 12))}
    ranks = played(strategy="diloco:4:0.7:0.9:2", make=MOMENTUM, **how)
    oracle = streaming(MOMENTUM, every=4, fragments=2, window=1, **how)
    assert alike(ranks)
    assert far(vector(ranks[0]), oracle.common) <= 1e-12
    assert ranks[0].plane.position().progress == 21


def test_between_two_exchanges_only_the_fragment_that_met_is_alike() -> None:
    """Two halves of the 53 values, of which the first has met after the second window."""
    seen: dict[int, torch.Tensor] = {}

    def look(rank: Rank, window: Window) -> None:
        if window.clock == 2:
            seen[rank.rank] = vector(rank).clone()

    played(strategy="diloco:4:0.7:0.9:2", make=ADAMW, total=12, world=2, at_window=look)
    first, second = seen[0].tensor_split(2), seen[1].tensor_split(2)
    assert torch.equal(first[0], second[0])
    assert not (first[1] == second[1]).any()


def test_an_exchange_sends_its_part_and_the_last_one_all() -> None:
    ranks = played(strategy="diloco:8:0.7:0.9:4", make=MOMENTUM, total=27, world=3)
    sent = [one.sent_bytes for one in ranks[0].outcomes]
    assert [n for n, one in enumerate(sent) if one] == [1, 3, 5, 7, 8]
    votes = ballot_bytes(3, fragments=4)
    whole = vector(ranks[0]).numel() * 8
    parts = [len(part) * 8 for part in vector(ranks[0]).tensor_split(4)]
    assert max(parts) - min(parts) <= 8
    assert [one - votes for one in sent if one] == [*parts, whole]


def test_windows_say_what_part_travels_at_their_end() -> None:
    said: list[float] = []

    def look(rank: Rank, window: Window) -> None:
        if rank.rank == 2:
            said.append(window.exchanges)

    played(strategy="diloco:4:0.7:0.9:2", make=MOMENTUM, total=23, world=3, at_window=look)
    assert said == [0, 0.5, 0, 0.5, 0, 0.5, 1]  # in the pass's last window others have a batch


ENDINGS: dict[str, dict[str, Any]] = {
    "a stream": {"known": False, "total": 11},
    "data of their own": {"totals": (2, 9, 5)},
    "one leaves": {"leaves": {1: 1}},
    "all leave": {"leaves": {0: 1, 1: 2, 2: 0}},
    "fewer batches than ranks": {"total": 2},
    "a stop": {"stops": {1: 2}, "total": 60},
}


@pytest.mark.parametrize("how", ENDINGS.values(), ids=ENDINGS.keys())
def test_ranks_that_end_at_different_times_end_alike(how: dict[str, Any]) -> None:
    play = {"total": 11, "passes": 2, **how}
    ranks = played(strategy="diloco:4:0.7:0.9:4", make=MOMENTUM, **play)
    assert alike(ranks)
    assert len({rank.plane.position() for rank in ranks}) == 1
    assert all(rank.plane.settled for rank in ranks)


def test_a_lost_replica_takes_over_all_fragments_at_once() -> None:
    found: list[bool] = []

    def ruin(rank: Rank, window: Window) -> None:
        if rank.rank == 2 and window.clock == 1:
            with torch.no_grad():
                next(rank.model.parameters())[0, 0] = math.inf
        if rank.rank == 2 and window.clock == 2:
            found.append(bool(vector(rank).isfinite().all()))

    ranks = played(strategy="diloco:8:0.7:0.9:4", make=MOMENTUM, total=24, world=3, at_window=ruin)
    assert found == [True]
    assert alike(ranks)
    assert bool(vector(ranks[0]).isfinite().all())


def test_inside_the_loop_the_latest_model_is_what_each_fragments_last_exchange_left() -> None:
    seen: dict[int, list[torch.Tensor]] = {0: [], 1: []}

    def look(rank: Rank, window: Window) -> None:
        own = vector(rank).clone()
        with rank.plane.latest():
            seen[rank.rank].append(vector(rank).clone())
        assert torch.equal(own, vector(rank))

    played(strategy="diloco:4:0.7:0.9:2", make=ADAMW, total=16, world=2, at_window=look)
    assert all(torch.equal(a, b) for a, b in zip(*seen.values(), strict=True))
    for before, after, fragment in ((1, 2, 0), (3, 4, 1), (5, 6, 0)):
        changed = [
            bool((a != b).any())
            for a, b in zip(
                seen[0][before].tensor_split(2), seen[0][after].tensor_split(2), strict=True
            )
        ]
        assert changed == [fragment == 0, fragment == 1]


def saved(rank: Rank) -> dict[str, Any]:
    """What a checkpoint would have of this rank, all of it copied."""
    with rank.plane.cut():
        model = {name: p.detach().clone() for name, p in rank.model.named_parameters()}
    return copy.deepcopy({"model": model, **rank.plane.own_state()})


@pytest.mark.parametrize("exchanges", [1, 2, 3])
def test_who_goes_on_from_a_checkpoint_between_two_fragments_makes_the_same_bits(
    exchanges: int,
) -> None:
    """Saved after the first, second and third exchange of a pass: other fragments are on their way."""
    kept: dict[int, dict[str, Any]] = {}
    windows = 2 * exchanges

    def keep(rank: Rank, window: Window) -> None:
        if window.clock == windows:
            assert rank.plane.settled
            kept[rank.rank] = saved(rank)

    word, work = "diloco:4:0.7:0.9:2", {"make": ADAMW, "world": 2}
    whole = played(strategy=word, total=18, at_window=keep, **work)

    def go_on(rank: Rank) -> None:
        rank.model.load_state_dict(kept[rank.rank]["model"])
        for name, parameter in rank.model.named_parameters():
            rank.optimizer.state[parameter] = kept[rank.rank]["optimizer"][name]

    again = played(
        strategy=word, total=18 - 2 * windows, first=2 * windows, begin=go_on,
        training={"version": windows, "progress": 2 * windows},
        replicas=[kept[rank]["replica"] for rank in range(2)], **work,
    )  # fmt: skip
    for one, other in zip(again, whole, strict=True):
        assert torch.equal(vector(one), vector(other))
        mine, theirs = (r.plane.own_state()["optimizer"] for r in (one, other))
        for name, state in theirs.items():
            assert torch.equal(mine[name][OUTER_MOMENTUM], state[OUTER_MOMENTUM])


def test_a_rank_that_the_checkpoint_did_not_have_begins_where_fragments_met() -> None:
    kept: dict[int, dict[str, Any]] = {}

    def keep(rank: Rank, window: Window) -> None:
        if window.clock == 2:
            kept[rank.rank] = saved(rank)

    word = "diloco:4:0.7:0.9:2"
    played(strategy=word, total=12, world=2, make=MOMENTUM, at_window=keep)
    begun: list[bool] = []

    def look(rank: Rank, window: Window) -> None:
        if rank.rank == 2 and window.clock == 0:
            begun.append(
                all(torch.equal(p, kept[0]["model"][n]) for n, p in rank.model.named_parameters())
            )

    ranks = played(
        strategy=word, total=12, world=3, make=MOMENTUM, at_window=look,
        begin=lambda rank: rank.model.load_state_dict(kept[0]["model"]),
        training={"version": 2, "progress": 4},
        replicas=[kept[0]["replica"], kept[1]["replica"], {}],
    )  # fmt: skip
    assert begun == [True]
    assert alike(ranks)


@pytest.mark.parametrize(
    ("word", "world", "lost"),
    [
        ("diloco:4:0.7:0.9:2", 2, ""), ("diloco:8:0.7:0.9:2", 3, ""), ("diloco:4:0.7:0.9:2", 1, "rank 1"),
        ("diloco:4:0.7:0.9:4", 2, "rank 0, 1"), ("diloco:4", 2, "rank 0, 1"), ("sync", 2, "rank 0, 1"),
    ],
)  # fmt: skip
def test_what_replicas_had_trained_is_not_left_behind_in_silence(
    word: str, world: int, lost: str
) -> None:
    one = {"values": {"0.weight": torch.zeros(2)}, "weights": [0.0, 3.0], "turn": 1}
    met = {"values": {}, "weights": [0.0, 0.0], "turn": 0}
    said = left_behind({0: one, 1: one}, parse_strategy(word), world_size=world)
    assert bool(said) == bool(lost)
    assert lost in said
    assert left_behind({0: met, 1: met, 2: {}}, parse_strategy(word), world_size=world) == ""


def test_parameters_of_any_layout_and_type_meet_in_fragments() -> None:
    def make(rank: int) -> Any:
        model, _ = MOMENTUM(rank)
        model[0].weight.data = model[0].weight.data.t().contiguous().t()
        model[2].bfloat16()
        model = torch.nn.Sequential(model[0], ToSixteen(), model[2])
        return model, torch.optim.SGD(model.parameters(), lr=0.05)

    ranks = played(strategy="diloco:4:0.7:0.9:4", make=make, total=36, world=2)
    assert all(
        torch.equal(p, q)
        for p, q in zip(ranks[0].model.parameters(), ranks[1].model.parameters(), strict=True)
    )
    assert not ranks[0].model[0].weight.is_contiguous()
    assert not torch.equal(ranks[0].model[2].weight, make(0)[0][2].weight)


class ToSixteen(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh().bfloat16()
