"""How facts are compared and remembered, hand and scheduler are told apart, and buffers that move."""

from __future__ import annotations

import torch
from torch import nn

from paceline.server.witnesses import KEPT_WINDOWS, Witnesses
from paceline.transport.facts import compare, describe
from paceline.transport.witness_messages import Fact, Witness
from paceline.worker.hand_changes import HandChanges
from paceline.worker.moving_buffers import MovingBuffers


def fact(value: str | None, shown: str = "") -> Fact:
    return Fact(value=value, shown=shown or str(value))


def test_the_first_difference_is_worded_by_rank_and_the_others_named() -> None:
    same = {"a": fact("1"), "lr": fact("0.1"), "x": fact("7")}
    other = {**same, "lr": fact("0.2"), "x": fact("8")}
    difference = compare({0: same, 1: same, 2: other})
    assert difference is not None
    assert describe(difference) == "lr: 0.1 on ranks 0, 1; 0.2 on rank 2 (also different: x)"


def test_what_is_missing_differs_and_what_cannot_be_compared_does_not() -> None:
    assert compare({0: {"a": fact(None, "1")}, 1: {"a": fact("2")}}) is None
    missing = compare({0: {"a": fact(None, "1")}, 3: {}})
    assert missing is not None
    assert describe(missing) == "a: 1 on rank 0; missing on rank 3"


def witness(index: int, value: str = "1", unused: tuple[str, ...] = ()) -> Witness:
    return Witness(pass_id=0, index=index, facts={"a": fact(value)}, unused=list(unused))


def test_whoever_comes_later_to_a_window_is_told() -> None:
    witnesses = Witnesses(3)
    assert witnesses.compare(2, witness(5)).difference is None
    assert witnesses.compare(0, witness(6, "2")).difference is None
    told = witnesses.compare(0, witness(5, "2")).difference
    assert told is not None
    assert [(one.rank, one.shown) for one in told.said] == [(2, "1"), (0, "2")]


def test_what_is_remembered_stays_bounded_and_equal_facts_are_kept_once() -> None:
    witnesses = Witnesses(2)
    for index in range(3 * KEPT_WINDOWS):
        witnesses.compare(0, witness(index))
    heard = list(witnesses._heard.values())
    assert len(heard) == KEPT_WINDOWS
    assert len({id(known[0].facts) for known in heard}) == 1
    for index in range(2 * KEPT_WINDOWS, 3 * KEPT_WINDOWS):
        witnesses.compare(1, witness(index))
    assert not witnesses._heard


def test_unused_parameters_are_named_once() -> None:
    witnesses = Witnesses(2)
    witnesses.compare(0, witness(0, unused=("b", "everywhere")))
    (said,) = witnesses.used_by_some(1, witness(0, unused=("everywhere",)))
    assert said.startswith("b has a gradient on rank 1 and none on rank 0, in window 0")
    witnesses.compare(0, witness(1, unused=("b",)))
    assert witnesses.used_by_some(1, witness(1)) == []


def test_hand_and_scheduler_are_told_apart() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    hand = HandChanges(optimizer)
    optimizer.step()
    for _ in range(3):
        hand.look()
        scheduler.step()
        hand.scheduled()
    assert (hand.moved, hand.in_group(0)) == ({(0, "lr")}, {})
    optimizer.param_groups[0]["lr"] = 0.7
    hand.look()
    scheduler.step()
    hand.scheduled()
    assert hand.in_group(0) == {"lr": 1}


def test_a_buffer_moves_if_forward_moves_it_in_place_or_anew() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(2)
            for name in ("in_place", "anew", "still"):
                self.register_buffer(name, torch.zeros(2))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.in_place += 1
            self.anew = self.anew + 1
            return inputs

    net = Net()
    moving = MovingBuffers(net)
    assert "norm.running_mean" in moving
    assert "in_place" not in moving
    net(torch.ones(1, 2))
    net.still[0] = 1.0  # by hand
    net(torch.ones(1, 2))
    assert [name in moving for name in ("in_place", "anew", "still")] == [True, True, False]
    moving.remove()
    assert not [*net._forward_hooks, *net._forward_pre_hooks]
