"""What one rank does to itself is found by all within ``every`` windows, and named; nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from verify.troupe import Answer, Troupe

pytestmark = pytest.mark.xdist_group("troupe")

EVERY = 3


# What is done on rank 1 -> what the error must name.
ANYWHERE = {
    "sign of zero": "parameter frozen: [1.0, 0.0] on rank 0; [1.0, -0.0] on rank 1",
    "buffer": "buffer offset",
    "missing buffer": "the type of buffer offset: float32 (5,) on rank 0; missing on rank 1",
    "lr": "lr of optimizer group 0: 0.01 on rank 0; 0.011 on rank 1",
    "momentum": "momentum of optimizer group 0: 0.9 on rank 0; 0.8 on rank 1",
    "weight decay": "weight_decay of optimizer group 0: 0.0 on rank 0; 0.1 on rank 1",
    "frozen flag": "requires_grad of parameter last.bias: True on rank 0; False on rank 1",
    "type": "the type of parameter frozen: float32 (2,) on rank 0; float64 (2,) on rank 1",
    "mode": "the mode of norm: train on rank 0; eval on rank 1",
    "class": "the optimizer's class: 'SGD' on rank 0; 'Other' on rank 1",
}
FULL = [pytest.param(word, marks=pytest.mark.full) for word in ("ssp:2", "backup:1")]
ON_SERVER = ["sync:server", "async", *FULL]
STRATEGIES = ["sync:allreduce", *ON_SERVER, pytest.param("local:3", marks=pytest.mark.full)]
STATE = {
    "weight": "parameter second.weight",
    "sign of zero, trained": "parameter last.bias: [0.0, 0.0, 0.0] on rank 0; [0.0, -0.0, 0.0]",
    "optimizer step": "optimizer state step of second.weight: 5.0 on rank 0; 6.0 on rank 1",
    "moment": "optimizer state exp_avg of second.weight",
}
SGD = {"optimizer": "SGD", "hyper": {"momentum": 0.9}}
ADAM = {"optimizer": "AdamW", "hyper": {}}


def scene_of(strategy: str, act: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "strategy": strategy, "every": EVERY, "act": act, "at": 4, "steps": 20,
        "pause_s": 0.0 if strategy.startswith("sync") else 0.01, **SGD, **more,
    }  # fmt: skip


def check_found(answers: list[Answer], named: str) -> None:
    for answer in answers:
        assert answer.get("error") == "ConsistencyError", answer
        assert named in answer["text"], answer
        assert "rank 1" in answer["text"]
        assert "in window 5 of pass 0" in answer["text"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("act", ANYWHERE)
def test_what_one_rank_does_is_found_and_named(troupe: Troupe, strategy: str, act: str) -> None:
    check_found(troupe.play(scene_of(strategy, act)), ANYWHERE[act])


@pytest.mark.parametrize("act", STATE)
def test_state_that_lies_with_each_worker(troupe: Troupe, act: str) -> None:
    still = act.startswith("sign")
    answers = troupe.play(scene_of("sync:allreduce", act, **ADAM, still=still))
    check_found(answers, STATE[act])


@pytest.mark.parametrize("strategy", ON_SERVER)
def test_parameters_on_the_server_plane_are_held_against_the_version(
    troupe: Troupe, strategy: str
) -> None:
    """Written to behind torch's back, and no longer those of the server at all."""
    for answer in troupe.play(scene_of(strategy, "weight", every=1, at=5)):
        assert answer.get("error") == "ConsistencyError", answer
        # All who read that version see it, so that any of them may be the one to say so.
        assert "parameter second.weight is float32 with sum" in answer["text"]
    elsewhere = troupe.play(scene_of(strategy, "bound elsewhere", at=5))
    check_found(elsewhere, "in the version that the server gave it")


def test_a_learning_rate_that_a_scheduler_moves_is_held_against_changes_by_hand(
    troupe: Troupe,
) -> None:
    answers = troupe.play(scene_of("async", "lr", scheduled=True, at=5))
    check_found(answers, "changes by hand of optimizer group 0")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_found_where_nothing_is_wrong(troupe: Troupe, strategy: str) -> None:
    """Batch norm's and other statistics of each rank's own, a scheduler, several short passes."""
    clean = scene_of(strategy, every=1, scheduled=True, passes=3, steps=None)
    for answer in troupe.play(clean):
        assert "steps" in answer, answer
    assert not [note for note in troupe.notes if "gradient" in note]


def test_synchronised_batch_norm_is_no_false_alarm(troupe: Troupe) -> None:
    clean = scene_of("sync:allreduce", every=1, passes=2, steps=None, batch_norm="sync", batches=7)
    for answer in troupe.play(clean):
        assert "steps" in answer, answer


@pytest.mark.parametrize("strategy", ["sync:allreduce", "async"])
def test_frozen_statistics_are_buffers_like_others(troupe: Troupe, strategy: str) -> None:
    check_found(
        troupe.play(scene_of(strategy, "statistic", batch_norm="freeze")),
        "buffer norm.running_mean",
    )


@pytest.mark.parametrize("strategy", ["sync:allreduce", "async"])
def test_parameters_unused_on_some_ranks_are_named_once(troupe: Troupe, strategy: str) -> None:
    for answer in troupe.play(scene_of(strategy, branch=True)):
        assert "steps" in answer, answer
    (note,) = [note for note in troupe.notes if "gradient" in note]
    assert "branch has a gradient on rank 0 and none on rank 1, in window 2" in note


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_false_alarm_in_ten_thousand_steps(troupe: Troupe, strategy: str) -> None:
    clean = scene_of(strategy, every=1, scheduled=True, passes=20, steps=500, pause_s=0.0)
    answers = troupe.play(clean, patience_s=1500.0)
    assert sum(answer["steps"] for answer in answers) == 20_000, answers
