"""Two workers that load a checkpoint, under every kind of plane: the bits, or the batches, hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from resumed_together import train

from paceline import checkpoints
from support.leaks import assert_nothing_is_left
from support.runs import run_script

JOINT = ("sync:server", "sync:allreduce")
PER_PUSH = ("async", "backup:1")
DRIFTING = ("local:3", "diloco:2", "diloco:4:0.7:0.9:2")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    return trained(tmp_path_factory.mktemp("joined"), *JOINT, *PER_PUSH)


def trained(base: Path, *strategies: str) -> tuple[Path, list[dict[str, Any]]]:
    script = Path(__file__).parent / "resumed_together.py"
    alone = base / "alone"
    train("sync", alone)
    run = run_script(script, [str(base), str(alone), *strategies], workers=2, timeout_s=110)
    assert run.exit_code == 0, run.stderr[-3000:]
    assert_nothing_is_left(run)
    return base, [json.loads((base / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


pytestmark = [pytest.mark.xdist_group("joined checkpoints"), pytest.mark.timeout(150)]


@pytest.mark.parametrize("strategy", JOINT)
def test_joint_strategies_end_with_the_bits_of_the_uninterrupted_run(
    outcome: Any, strategy: str
) -> None:
    _, ranks = outcome
    assert ranks[0][strategy]["saved"] == ranks[1][strategy]["saved"]
    for own in (rank[strategy] for rank in ranks):
        whole = own["whole"]
        assert whole["facts"][-1] == strategy.removeprefix("sync:")
        resumed = [own[name] for name in own["saved"] if name in own]
        assert len(resumed) == 2
        for again in resumed:
            assert again["digest"] == whole["digest"]
            assert again["facts"] == whole["facts"]
            for mine, all_of_them in zip(again["steps"], whole["steps"], strict=True):
                assert mine == all_of_them[len(all_of_them) - len(mine) :]


@pytest.mark.parametrize("strategy", JOINT)
def test_a_save_of_the_last_round_is_made_up_for_at_the_pass_end(
    outcome: Any, strategy: str
) -> None:
    """13 batches for two: rank 1 has none in the last round, and does not call save there."""
    base, _ = outcome
    bodies = [
        checkpoints.read_body(path)
        for path in checkpoints.found(base / strategy.replace(":", "-") / "whole")
    ]
    assert [(body["passes"], body["inside"]) for body in bodies if not body["inside"]] == [
        (1, False), (2, False),
    ]  # fmt: skip


@pytest.mark.parametrize("strategy", PER_PUSH)
def test_elsewhere_every_batch_survives_exactly_once(outcome: Any, strategy: str) -> None:
    """What was left at the cut is what is computed after it, in both ranks together."""
    base, ranks = outcome
    home = base / strategy.replace(":", "-") / "whole"
    names = [name for name in ranks[0][strategy]["saved"] if name in ranks[0][strategy]]
    assert len(names) == 2
    for name in names:
        body = checkpoints.read_body(home / name)
        again = [rank[strategy][name] for rank in ranks]
        done = [sorted(again[0]["steps"][p] + again[1]["steps"][p]) for p in (0, 1)]
        interrupted = body["passes"]
        whole = [rank[strategy]["whole"]["steps"][interrupted] for rank in ranks]
        assert len(whole[0] + whole[1]) == 13
        counts = [0 if p < body["passes"] else 13 for p in (0, 1)]
        counts[body["passes"]] = sum(
            len(one["returned"]) + one["total"] - one["next"] for one in body["left"]
        )
        assert [len(numbers) for numbers in done] == counts
        assert set(done[interrupted]) <= set(whole[0] + whole[1])
        assert all(len(set(numbers)) == len(numbers) for numbers in done), "none twice"
        if strategy == "async":
            assert again[0]["facts"][0] == body["version"] + sum(counts)
            assert body["version"] == 26 - sum(counts), "all that was decided is in"


def test_another_strategy_goes_on_with_what_was_left(outcome: Any) -> None:
    _, ranks = outcome
    mine, theirs = (rank["other"]["ssp:3"]["steps"] for rank in ranks)
    done = [mine[p] + theirs[p] for p in (0, 1)]
    assert [len(numbers) for numbers in done] == [13 - 6, 13]
    assert len(set(done[0])) == 7


def test_another_number_of_workers_goes_on_with_what_was_left(outcome: Any, tmp_path: Path) -> None:
    base, ranks = outcome
    saved = checkpoints.found(base / "sync-server" / "whole")
    fewer = train("sync", tmp_path, saved[2])
    assert [len(numbers) for numbers in fewer["steps"]] == [13 - 6, 13]
    done = [rank["sync:server"]["whole"]["steps"][0][3:] for rank in ranks]
    assert set(fewer["steps"][0]) == set(done[0] + done[1])
    more = [rank["other"]["from one"] for rank in ranks]
    assert [len(more[0]["steps"][p] + more[1]["steps"][p]) for p in (0, 1)] == [13 - 5, 13]
    assert more[0]["facts"] == more[1]["facts"] == [5 + 4 + 7, 2 * 13 * 4, *more[0]["facts"][2:]]


@pytest.mark.full
def test_replicas_are_saved_at_an_exchange_and_end_with_the_same_bits(tmp_path: Path) -> None:
    """Asked for at every step, written when all have one model, which holds each rank's own momentum."""
    base, ranks = trained(tmp_path, *DRIFTING)
    for strategy, updates in zip(DRIFTING, ([3, 6, 7], [2, 4], [2, 4, 6, 7]), strict=True):
        saved = checkpoints.found(base / strategy.replace(":", "-") / "whole")
        versions = [checkpoints.read_body(path)["version"] for path in saved]
        assert sorted(set(versions))[: len(updates)] == updates
        for own in (rank[strategy] for rank in ranks):
            whole = own["whole"]
            resumed = [own[name] for name in own["saved"] if name in own]
            assert len(resumed) == 2
            for again in resumed:
                assert again["digest"] == whole["digest"]
                assert again["facts"] == whole["facts"]
        digests = {rank[strategy]["whole"]["digest"] for rank in ranks}
        assert len(digests) == 2, "the optimizers' states are the ranks' own"
