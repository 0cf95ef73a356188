"""A group (hybrid) that loses a member leaves as a whole, and the other groups go on; script.py strikes."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_deaths import BATCHES, decided, struck

from paceline.runs import read_run

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]
LEADER, MEMBER = 2, 3


@pytest.mark.parametrize("strategy", ["hybrid:async", "hybrid:ssp:3"])
@pytest.mark.parametrize(
    ("victim", "point"),
    [
        (MEMBER, "forward"), (MEMBER, "wait"), (MEMBER, "evaluate"),
        (LEADER, "backward"), (LEADER, "wait"), (LEADER, "pull"),
    ],
)  # fmt: skip
def test_a_group_leaves_with_a_killed_member(
    tmp_path: Path, strategy: str, victim: int, point: str
) -> None:
    result, _, finished = struck(
        tmp_path, strategy, "--point", point, "--victim", str(victim), group_size=2, timeout_s=200
    )
    assert finished == [0, 1], result.stderr[-3000:]
    assert result.exit_code == 0, result.stderr[-3000:]
    other = LEADER + MEMBER - victim
    assert f"rank {other} (pid" in result.stderr
    assert f"leaves with its group: rank {victim} (pid" in result.stderr, result.stderr[-3000:]
    for batches in decided(read_run(result.out)):
        assert sorted(batches) == list(range(BATCHES)), "every batch in exactly one decided push"


@pytest.mark.parametrize("victim", [LEADER, MEMBER])
def test_a_stopped_member_is_named_and_its_group_evicted(tmp_path: Path, victim: int) -> None:
    result, _, finished = struck(
        tmp_path, "hybrid:async", "--point", "forward", "--method", "stop", "--victim", str(victim),
        group_size=2, timeout_s=200,
    )  # fmt: skip
    assert finished == [0, 1], result.stderr[-3000:]
    assert result.exit_code == 0, result.stderr[-3000:]
    assert f"leaves with its group: rank {victim} (pid" in result.stderr
    assert "was silent for" in result.stderr
    for batches in decided(read_run(result.out)):
        assert sorted(batches) == list(range(BATCHES))


@pytest.mark.parametrize("victim", [LEADER, MEMBER])
def test_groups_that_wait_for_each_other_stop_within_10_seconds_naming_the_rank(
    tmp_path: Path, victim: int
) -> None:
    result, seconds, finished = struck(
        tmp_path, "hybrid:ssp:0", "--point", "forward", "--victim", str(victim), group_size=2,
        timeout_s=200,
    )  # fmt: skip
    assert finished == []
    assert seconds < 10
    assert result.exit_code == 3, result.stderr[-3000:]
    assert f"rank {victim} died" in result.stderr or f"rank {victim} (pid" in result.stderr
