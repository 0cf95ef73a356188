"""Every promise of the user's loop, on real processes and both planes (scenarios.py plays them)."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from scenarios_names import NAMES

from paceline.strategies import parse_strategy, windows_apart
from support.runs import run_script

SCRIPT = Path(__file__).parent / "scenarios.py"
SETTINGS = [("sync:server", 2), ("sync:allreduce", 2), ("async", 3)]
FULL = [
    ("ssp:1", 2), ("sync:allreduce", 3), ("sync:server", 3), ("backup:1", 3),
    ("local:2", 2), ("diloco:3", 3), ("diloco:4:0.7:0.9:2", 2), ("hybrid:async", 4),
]  # fmt: skip
GROUP_SIZE = 2
JOINT = ("sync:server", "sync:allreduce", "backup:1")

Results = dict[str, list[dict[str, Any]]]


def _marked(strategy: str, workers: int) -> Any:
    full = (strategy, workers) in FULL
    group = pytest.mark.xdist_group(f"loop-{strategy}-{workers}")  # one process plays it once
    marks = [group, pytest.mark.full] if full else [group]
    return pytest.param((strategy, workers), id=f"{strategy}-{workers}", marks=marks)


@pytest.fixture(scope="module", params=[_marked(*setting) for setting in SETTINGS + FULL])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All scenarios, played once for one strategy: (strategy, workers, results by name)."""
    strategy, workers = request.param
    out = tmp_path_factory.mktemp("loop")
    groups = {"group_size": GROUP_SIZE} if strategy.startswith("hybrid") else {}
    run = run_script(SCRIPT, [str(out), strategy], workers=workers, timeout_s=400, **groups)
    results = {
        name: [json.loads(path.read_text()) for path in sorted(out.glob(f"{name}-rank*.json"))]
        for name in NAMES
    }
    missing = [name for name in NAMES if len(results[name]) != workers]
    assert not missing, f"never finished: {missing}\n{run.stderr[-3000:]}"
    assert run.exit_code == 0, run.stderr[-3000:]
    return strategy, workers, results


def dealt(strategy: str) -> bool:
    """Whether batch j is worker j mod N's."""
    return strategy.startswith(("sync", "local", "diloco"))


def same(results: list[dict[str, Any]], key: str = "end") -> bool:
    return len({json.dumps(result[key]) for result in results}) == 1


pytestmark = pytest.mark.timeout(240)


def test_all_promises_of_the_loop(played: Any) -> None:
    """Ends with equal parameters on every rank, whatever happened in between."""
    _, _, results = played
    for name, by_rank in results.items():
        if "end" in by_rank[0]:
            assert same(by_rank), name


def test_replicas_start_from_rank_0_and_end_equal(played: Any) -> None:
    strategy, _, results = played
    by_rank = results["replicas_start_from_rank_0_and_end_equal"]
    assert same(by_rank, "start")
    assert all(r["closed"] == r["end"] for r in by_rank), "parameters survive close"
    assert all(r["norms"] for r in by_rank)
    assert all(r["gloo_threads_left"] == 0 for r in by_rank), "a forked process cannot join them"
    assert by_rank[0]["keys"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    if strategy != "backup:1":
        assert sum(r["windows"] for r in by_rank) == 12, "every batch once"
        assert all(r["applied"] == r["windows"] for r in by_rank)


def test_break_on_one_rank_lets_the_others_go_on(played: Any) -> None:
    strategy, workers, results = played
    by_rank = results["break_on_one_rank_lets_the_others_go_on"]
    assert by_rank[1]["steps"] == 2
    others = sum(r["steps"] for i, r in enumerate(by_rank) if i != 1)
    if dealt(strategy):
        assert others == 12 - 12 // workers, "the rank's own share is computed by nobody"
    elif strategy != "backup:1":
        assert others in (9, 10), "on demand the others take over all but a batch in hand"
    assert all(r["mean"] == 1.0 for r in by_rank)


def test_an_iteration_without_step_counts_as_weight_zero(played: Any) -> None:
    strategy, workers, results = played
    by_rank = results["an_iteration_without_step_counts_as_weight_zero"]
    if strategy.startswith("hybrid"):  # the other group may leave rank 1 one batch of twelve
        assert sum(r["steps"] for r in by_rank) == 12 - (by_rank[1]["handed"] > 1)
    elif strategy != "backup:1":
        assert sum(r["steps"] for r in by_rank) == 11
    if dealt(strategy):
        assert by_rank[0]["version"] == 12 // workers


def test_stop_is_agreed(played: Any) -> None:
    strategy, _, results = played
    by_rank = results["stop_is_agreed"]
    assert all(r["outside"] == [False, True] for r in by_rank)
    if dealt(strategy):
        apart = windows_apart(parse_strategy(strategy))
        seen_at = ceil(3 / apart) * apart  # at an exchange
        assert {r["steps"] for r in by_rank} == {seen_at}
    assert sum(r["steps"] for r in by_rank) < 60


def test_ranks_may_run_out_of_their_own_data_at_different_times(played: Any) -> None:
    _, workers, results = played
    by_rank = results["ranks_may_run_out_of_their_own_data_at_different_times"]
    assert [r["steps"] for r in by_rank] == [3 + 3 * rank for rank in range(workers)]


def test_rank_0_alone_may_evaluate_inside_the_loop(played: Any) -> None:
    _, _, results = played
    seen = results["rank_0_alone_may_evaluate_inside_the_loop"][0]["seen"]
    assert seen[0] == [20, 3.0, False, False], "the whole loader, local mean, eval mode, no grad"
    assert seen[1] == [True, True, True], "parameters, mode and grad are restored"


def test_evaluation_after_the_loop_is_shared_exact_and_equal(played: Any) -> None:
    _, _, results = played
    by_rank = results["evaluation_after_the_loop_is_shared_exact_and_equal"]
    assert sum(r["count"] for r in by_rank) == 21
    assert same(by_rank, "pooled")
    assert by_rank[0]["pooled"] == pytest.approx(by_rank[0]["alone"], abs=1e-12)


def test_a_backward_that_breaks_off_late_spoils_nothing(played: Any) -> None:
    strategy, _, results = played
    by_rank = results["a_backward_that_breaks_off_late_spoils_nothing"]
    assert [r["caught"] for r in by_rank][:2] == [0, 1]
    assert all(r["largest"] < 10 for r in by_rank), "nothing of it was applied"
    if strategy == "sync:allreduce":
        assert "broke off on rank 1" in by_rank[0]["refused"][0]


def test_an_unused_parameter_is_left_alone(played: Any) -> None:
    strategy, _, results = played
    for result in results["an_unused_parameter_is_left_alone"]:
        if strategy == "backup:1":  # the pushes of rank 1, which alone uses `odd`, may all be late
            result["moved"].update({"odd.weight": True, "odd.bias": True})
        assert result["moved"] == {
            "trunk.weight": True, "trunk.bias": True, "odd.weight": True, "odd.bias": True,
            "never.weight": False, "never.bias": False,
        }  # fmt: skip
        assert result["grad_is_none"]


def test_groups_frozen_and_channels_last_parameters_work(played: Any) -> None:
    _, _, results = played
    for result in results["groups_frozen_and_channels_last_parameters_work"]:
        assert result["strides_kept"]
        assert result["state"] >= 3, "momentum of the second group"


@pytest.mark.parametrize("name", ["gradient_checkpointing_works", "a_compiled_model_works"])
def test_applied_throughout(played: Any, name: str) -> None:
    strategy, _, results = played
    if strategy != "backup:1":
        assert all(r["applied"] for r in results[name])


def test_a_stream_is_split_by_batch(played: Any) -> None:
    strategy, _, results = played
    if strategy != "backup:1":
        assert sum(r["steps"] for r in results["a_stream_is_split_by_batch"]) == 11


def test_steps_means_s_times_n_windows_in_total(played: Any) -> None:
    strategy, workers, results = played
    if strategy == "backup:1":
        return
    endless = results["an_endless_loader_ends_after_steps"]
    assert sum(r["windows"] for r in endless) == 5 * workers
    assert sum(r["steps"] for r in endless) == 10 * workers
    repeated = results["a_short_loader_is_repeated_for_steps"]
    assert sum(r["steps"] for r in repeated) == 6 * workers


def test_a_cosine_ends_at_the_same_point(played: Any) -> None:
    strategy, _, results = played
    if strategy == "backup:1":
        return
    for result in results["a_cosine_ends_at_the_same_point"]:
        assert result["middle"] == pytest.approx(0.05, abs=1e-9)
        assert result["end"] == pytest.approx(0.0, abs=1e-9)


def test_a_learning_rate_of_zero_reaches_the_optimizer(played: Any) -> None:
    strategy, _, results = played
    if strategy.startswith("diloco"):
        return  # its outer step goes on by its momentum: tests/local_sgd says exactly how far
    assert all(r["same"] for r in results["a_learning_rate_of_zero_reaches_the_optimizer"])


def test_the_optimizers_state_is_there_after_the_loop(played: Any) -> None:
    strategy, workers, results = played
    updates = 12 // workers if dealt(strategy) else 12
    updates = 12 // GROUP_SIZE if strategy.startswith("hybrid") else updates
    for result in results["the_optimizers_state_is_there_after_the_loop"]:
        assert result["inside"][0] == 4
        if strategy != "backup:1":
            assert result["inside"][1] == updates
        assert result["closed"] == result["inside"][1]
        assert result["inside"][2] > 0


def test_an_optimizer_trained_before_begins_as_rank_0s(played: Any) -> None:
    strategy, _, results = played
    if not strategy.startswith(("local", "diloco")):  # replicas go on with momentum of their own
        assert same(results["an_optimizer_trained_before_begins_as_rank_0s"], "state")


def test_a_pass_inside_a_pass_is_refused(played: Any) -> None:
    strategy, _, results = played
    for result in results["a_pass_inside_a_pass_is_refused"]:
        assert "zip the loaders" in result["text"]
        assert result["applied"] or strategy == "backup:1", "the worker goes on"


def test_batches_from_loader_workers_arrive_once(played: Any) -> None:
    strategy, _, results = played
    seen = sorted(x for r in results["batches_from_loader_workers_arrive_once"] for x in r["seen"])
    if strategy != "backup:1":
        assert seen == [float(x) for x in range(48)]


def test_dropout_differs_between_ranks(played: Any) -> None:
    _, _, results = played
    assert not same(results["dropout_differs_between_ranks"], "draw")


def test_one_non_finite_loss_is_skipped_and_training_goes_on(played: Any) -> None:
    strategy, _, results = played
    by_rank = results["one_non_finite_loss_is_skipped_and_training_goes_on"]
    assert all(r["finite"] for r in by_rank)
    skipped = [r["reasons"] for r in by_rank]
    if strategy in JOINT and strategy != "backup:1":
        assert all(len(reasons) == 1 for reasons in skipped), "all skip together"
    elif strategy != "backup:1":
        with_rank_1 = (0, 1) if strategy.startswith("hybrid") else (1,)  # its group's push
        assert [len(reasons) for reasons in skipped] == [
            int(i in with_rank_1) for i in range(len(skipped))
        ]
    named = [reason for reasons in skipped for reason in reasons]
    if strategy != "backup:1":
        assert all("rank 1" in reason and "0.weight" in reason for reason in named), named
