"""What cannot work together whatever is trained: decided once, by words alone."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.compression import parse_compression
from paceline.errors import UsageError
from paceline.policy.pairings import Pairing, plane_of, refuse_on, refuse_pairing
from paceline.strategies import parse_strategy
from paceline.trials import parse_trial


def said(text: str, workers: int, **more: Any) -> Pairing:
    """A ``--try`` of so many workers."""
    trial = parse_trial(text)
    options = {**trial.overrides, "compress": parse_compression(trial.overrides.get("compress"))}
    return Pairing(
        strategy=parse_strategy(trial.strategy), workers=workers, **{**options, **more}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "workers", "remedy"),
    [
        ("async group_size=2", 2, "Leave group_size out"),
        ("local:8 group_size=2", 2, "only hybrid:async and hybrid:ssp:3 have groups"),
        ("local:8 compress=topk:0.01", 2, "no gradients travel"),
        ("diloco:50 compress=int8", 2, "meet less often"),
        ("local:8 reduce_dtype=bf16", 2, "Leave reduce_dtype out"),
        ("async reduce_dtype=fp16", 2, "sync:allreduce"),
        ("hybrid:async reduce_dtype=fp16", 2, "sync:allreduce"),
        ("sync compress=sign reduce_dtype=bf16", 1, "Leave one of them out"),
        ("sync:allreduce compress=topk:0.01,pull=int8", 2, "Leave pull out"),
        ("backup:2", 2, "at most backup:1"),
        ("async batch_norm=sync", 2, "no step in common"),
        ("sync:server batch_norm=sync", 2, "sync:allreduce"),
        ("sync global_batch=10", 4, "multiple of 4, such as 12"),
    ],
)
def test_what_cannot_work_names_both_and_the_remedy(text: str, workers: int, remedy: str) -> None:
    pairing = said(text, workers)
    with pytest.raises(UsageError, match="cannot work together") as refusal:
        refuse_pairing(pairing)
    assert remedy in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "workers"),
    [
        ("hybrid:async group_size=1", 2),
        ("local:8 compress=topk:0.01", 1),  # alone it exchanges nothing, whatever the word
        ("backup:2", 1),
        ("async batch_norm=sync", 1),
        ("sync batch_norm=sync", 2),
        ("sync compress=topk:0.01,pull=int8", 2),  # by what plane, the model's device decides
        ("async compress=topk:0.01,pull=int8", 2),
        ("sync:allreduce reduce_dtype=bf16", 2),
        ("async reduce_dtype=fp32", 2),  # no narrower than it is anyway
        ("sync global_batch=12", 4),
        ("ssp:3 compress=powersgd:4", 4),
    ],
)
def test_what_can_work_is_let_through(text: str, workers: int) -> None:
    refuse_pairing(said(text, workers))


def test_groups_fill_hosts_where_these_are_known() -> None:
    refuse_pairing(said("hybrid:async group_size=2", 3))
    with pytest.raises(UsageError, match="Use a divisor of 3"):
        refuse_pairing(said("hybrid:async group_size=2", 3, hosts=["a"] * 3))
    with pytest.raises(UsageError, match="on different hosts"):
        refuse_pairing(said("hybrid:async group_size=2", 6, hosts=list("aaabbb")))
    with pytest.raises(UsageError, match="equal shares"):
        refuse_pairing(said("hybrid:ssp:0", 3, hosts=["a", "a", "b"]))
    refuse_pairing(said("hybrid:async", 3, hosts=["a", "a", "b"]))


def test_optimizers_that_compare_gradients_need_those_of_all() -> None:
    with pytest.raises(UsageError, match="async and Rprop"):
        refuse_pairing(said("async", 2, optimizer="Rprop"))
    refuse_pairing(said("backup:1", 2, optimizer="Rprop"))


def test_the_plane_is_known_where_the_word_says_it() -> None:
    planes = {
        word: plane_of(parse_strategy(word), 2)
        for word in ("sync", "sync:allreduce", "sync:server", "ssp:3", "hybrid:async", "local:8")
    }
    assert planes == {
        "sync": None, "sync:allreduce": "allreduce", "sync:server": "server", "ssp:3": "server",
        "hybrid:async": "hybrid", "local:8": "replicas",
    }  # fmt: skip
    assert plane_of(parse_strategy("local:8"), 1) == "local"
    assert plane_of(parse_strategy("sync:allreduce"), 2, collectives=False) == "server"


def test_a_plane_that_the_model_decides_is_looked_at_when_it_is_known() -> None:
    sync, pulled = parse_strategy("sync"), parse_compression("topk:0.01,pull=int8")
    refuse_on(None, sync, compress=pulled, narrow=None)
    with pytest.raises(UsageError, match="by all-reduce"):
        refuse_on("allreduce", sync, compress=pulled, narrow=None)
