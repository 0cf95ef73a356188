"""What ``make bench`` concludes from what it measures. Pure: nothing is started or timed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from harness.figures import drift, ratios, step_s, steps_for, unequal_losses
from harness.goals import Goal, verdict_of
from harness.results import Row, Stored, load, merged, save
from parts.floor import floor_s, passes


def ranks(*begin_end_steps: tuple[float, float, int]) -> list[dict[str, float]]:
    return [{"begin_s": b, "end_s": e, "steps": s} for b, e, s in begin_end_steps]


def test_a_step_is_the_blocks_wall_time_over_the_steps_of_each_worker() -> None:
    assert step_s(ranks((10.0, 12.0, 4), (10.0, 12.0, 4))) == pytest.approx(0.5)


def test_steps_handed_out_on_demand_are_counted_together() -> None:
    """6 steps of two workers in 3 s: as if each had made one a second."""
    assert step_s(ranks((10.0, 13.0, 5), (10.5, 12.0, 1))) == pytest.approx(1.0)


def test_a_rank_without_a_batch_does_not_begin_the_block() -> None:
    assert step_s(ranks((10.0, 12.0, 4), (5.0, 5.0, 0))) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="without a step"):
        step_s(ranks((1.0, 2.0, 0)))


def test_a_pair_is_compared_with_itself_only() -> None:
    assert ratios([1.0, 2.0, 9.0], [2.0, 4.0, 6.0]) == [0.5, 0.5, 1.5]
    with pytest.raises(ValueError):
        ratios([1.0], [])


def test_blocks_have_at_least_three_steps() -> None:
    assert steps_for(1.2, 0.1) == 12
    assert steps_for(1.2, 5.0) == 3


def test_drift_is_a_share_of_the_way_that_the_peer_went() -> None:
    start, peer = np.zeros(4, np.float32), np.full(4, 2.0, np.float32)
    assert drift(peer, peer, start) == 0
    assert drift(start, peer, start) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="moved by 0"):
        drift(start, start, start)


def test_losses_are_close_only_if_the_peer_has_learnt_and_none_is_nan() -> None:
    assert unequal_losses(0.51, 0.5, 1.0, 0.05) == ""
    assert "apart" in unequal_losses(0.6, 0.5, 1.0, 0.05)
    assert "apart" in unequal_losses(float("nan"), 0.5, 1.0, 0.05)
    assert "did not fall" in unequal_losses(1.0, 1.0, 1.0, 0.05)
    assert "did not fall" in unequal_losses(1.0, float("nan"), 1.0, 0.05)


def test_a_goal_is_met_tolerated_or_missed() -> None:
    goal = Goal(limit=1.0, tolerated=1.03)
    assert [goal.verdict(value) for value in (1.0, 1.02, 1.04)] == ["ok", "near", "MISSED"]
    assert Goal(limit=100, at_least=True).verdict(99) == "MISSED"
    assert verdict_of("A N=2 sync", 0.1, "") == "ok"
    assert verdict_of("A N=2 sync", 0.1, "an update was lost") == "FAILED"
    assert verdict_of("A N=2 sync", None, "") == "FAILED"
    assert verdict_of("no goal", 5.0, "") == ""


def test_results_come_back_and_new_rows_replace_stored_ones(tmp_path: Path) -> None:
    old, new = Row(key="a", value=1.0), Row(key="a", value=2.0, values=(2.0,), note="x")
    other = Row(key="b", value=3.0)
    path = tmp_path / "kept" / "stored.json"
    assert load(path) == Stored()
    save(path, {"cores": 2}, merged(Stored(rows={"a": old, "b": other}), [new]))
    assert load(path) == Stored(machine={"cores": 2}, rows={"a": new, "b": other})


def test_the_floor_is_the_computation_and_the_passes_over_memory() -> None:
    assert [passes(word, 2) for word in ("sync", "allreduce", "async")] == [8, 13, 14]
    assert floor_s("sync", 2, 0.05, 20e9) == pytest.approx(0.05 + 8 * 100.1e6 / 20e9)
