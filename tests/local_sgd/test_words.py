"""What can be said of local SGD, how it prints, and what cannot be combined with it; votes. Pure."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import UsageError
from paceline.policy.pairings import strategy_for_norms
from paceline.strategies import DiLoCo, Local, drifts, parse_strategy, windows_apart
from paceline.worker.round_vote import Vote, ballot, tally
from paceline.worker.saving import refuse_never
from paceline.worker.topology import topology

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "word",
    ["local:8", "local:1", "local:inf", "diloco:50", "diloco:50:1:0.8", "diloco:48:0.7:0.9:4"],
)
def test_words_parse_and_print_back(word: str) -> None:
    strategy = parse_strategy(word)
    assert str(strategy) == word
    assert parse_strategy(str(strategy)) == strategy
    assert drifts(strategy)
    assert topology(strategy, 4, CPU) == "replicas"
    assert topology(strategy, 4, CPU, collectives=False) == "replicas"
    assert topology(strategy, 1, CPU) == "local"


def test_defaults_are_the_papers() -> None:
    assert parse_strategy("diloco:50") == DiLoCo(windows=50, outer_lr=0.7, outer_momentum=0.9)
    assert parse_strategy("diloco:50:0.7:0.9") == DiLoCo(windows=50)
    assert parse_strategy("diloco:50:0.7:0.9:1") == DiLoCo(windows=50)
    assert windows_apart(Local(windows=8)) == 8
    assert windows_apart(DiLoCo(windows=48, fragments=4)) == 12
    assert windows_apart(parse_strategy("sync")) == 1


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("local", "local:inf or diloco:50. Add the number: 'local:8'"),
        ("diloco", "Add the number: 'diloco:50'"),
        ("locl", "Did you mean 'local:8'"),
        ("local:0", "local=0: expected a whole number of windows >= 1"),
        ("local:-1", "local=-1: expected"),
        ("diloco:50:x", "a number, not 'x', as in 'diloco:50'"),
        ("local:1.5", "whole number of windows >= 1"),
        ("local:nan", "whole number"),
        ("local:-inf", "whole number"),
        ("diloco:inf", "local:inf"),
        ("diloco:8:0", "outer lr"),
        ("diloco:8:1:1", "outer momentum"),
        ("diloco:8:1:0.9:4:5", "diloco:50"),
        ("diloco:50:1:0.9:4", "divides the 50 windows. With 48 windows .* every 12"),
        ("diloco:2:1:0.9:3", "With 3 windows .* every 1"),
        ("diloco:8:1:0.9:0", "whole number >= 1"),
        ("diloco:8:1:0.9:1.5", "whole number >= 1"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_strategy(word)


def test_synchronised_batch_norm_is_refused() -> None:
    with pytest.raises(UsageError, match="no step in common"):
        strategy_for_norms(parse_strategy("local:8"), "sync")


def test_replicas_that_never_meet_cannot_be_saved() -> None:
    with pytest.raises(UsageError, match="drift apart"):
        refuse_never(parse_strategy("local:inf"), 2)
    refuse_never(parse_strategy("local:inf"), 1)
    refuse_never(parse_strategy("local:8"), 2)


def vote_of(weight: float, *, stop: bool = False, over: bool = False) -> Vote:
    windows = 3 if weight else 0
    return Vote(weights=(weight,), windows=windows, updates=2, batches=4, stop=stop, over=over)


def joined(*votes: Vote) -> list[float]:
    ballots = [ballot(vote, rank=rank, world_size=len(votes)) for rank, vote in enumerate(votes)]
    return [sum(column) for column in zip(*ballots, strict=True)]


def test_votes_add_up_to_shares() -> None:
    agreed = tally(joined(vote_of(1.0), vote_of(0.0), vote_of(3.0, over=True)))
    assert agreed.shares == ((0.25, 0.0, 0.75),)
    assert (agreed.windows, agreed.updates, agreed.batches, agreed.ended) == (3, 2, 12, False)


def test_a_pass_ends_when_all_are_done_or_one_says_stop() -> None:
    assert tally(joined(vote_of(1.0, over=True), vote_of(0.0, over=True))).ended
    assert tally(joined(vote_of(1.0, stop=True), vote_of(1.0))).ended
    assert tally(joined(vote_of(0.0), vote_of(0.0))).shares == ((0.0, 0.0),)


def test_votes_have_a_weight_for_each_fragment() -> None:
    votes = [
        Vote(weights=weights, windows=1, updates=1, batches=1, stop=False, over=False)
        for weights in ((1.0, 0.0, 2.0), (1.0, 0.0, 6.0))
    ]
    assert tally(joined(*votes), fragments=3).shares == ((0.5, 0.5), (0.0, 0.0), (0.25, 0.75))
