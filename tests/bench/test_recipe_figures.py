"""What ``make bench-accuracy`` plans and concludes. Pure: nothing is trained."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from recipes.cells import Cell, Setting, compared, picking, plan
from recipes.figures import mean_curve, standard_error, time_to, upper_bound
from recipes.store import Point, Store
from recipes.table import tables

from paceline.simulate.cluster import ClusterModel

SYNC, SSP = (Setting(task="fashion", strategy=name) for name in ("sync", "ssp:3"))


def curve(*scores: float, step_s: float = 10.0) -> list[Point]:
    return [
        Point(time_s=step_s * (n + 1), samples=100.0 * (n + 1), score=score)
        for n, score in enumerate(scores)
    ]


def test_bounds_are_students() -> None:
    lost = [0.1, 0.3, 0.2, 0.0]
    error = math.sqrt(sum((x - 0.15) ** 2 for x in lost) / 3 / 4)
    assert standard_error(lost) == pytest.approx(error)
    assert upper_bound(lost) == pytest.approx(0.15 + 1.638 * error)
    assert upper_bound([0.1]) == math.inf


def test_time_to_a_score_lies_between_epochs() -> None:
    assert time_to(curve(50.0, 70.0, 90.0), 80.0) == 25.0
    assert time_to(curve(50.0, 70.0), 40.0) == 10.0
    assert time_to(curve(50.0, 70.0), 80.0) == math.inf
    assert mean_curve([curve(50.0, 70.0), curve(60.0, 90.0, step_s=30.0)]) == [
        Point(time_s=20.0, samples=100.0, score=55.0),
        Point(time_s=40.0, samples=200.0, score=80.0),
    ]


def test_rates_are_picked_on_held_out_data_before_anything_is_tested() -> None:
    first = next(iter(plan(lambda _: None, 10)))
    assert first.held_out
    assert all(cell.held_out for cell in plan(lambda _: None, 10))
    cells = list(plan(lambda _: 0.1, 10))
    tested = {cell.seed for cell in cells if cell.setting == SSP and not cell.held_out}
    assert tested == set(range(10))
    assert not tested & {cell.seed for cell in cells if cell.held_out}


def test_every_cluster_file_is_one_that_paceline_reads() -> None:
    for cell in {cell.setting.cluster: cell for cell in plan(lambda _: 0.1, 1)}.values():
        model = ClusterModel.parse(cell.cluster_toml)
        assert (model.count, model.jitter) == (cell.setting.workers, 0.1)
        assert model.hiccups.probability == 0.05


def test_what_is_stored_is_found_again_and_makes_the_table(tmp_path: Path) -> None:
    path = tmp_path / "recipes.jsonl"
    store = Store(path)
    for setting, best, step_s in ((SYNC, 91.0, 10.0), (SSP, 90.9, 6.6)):
        for number, cell in enumerate(picking(setting)):
            store.add(cell, curve(80.0, best - number, step_s=step_s), wall_s=1.0)
        for seed in range(2):
            cell = Cell(setting=setting, lr=picking(setting)[0].lr, seed=seed)
            store.add(cell, curve(80.0, best + 0.1 * seed, step_s=step_s), wall_s=1.0)
    again = Store(path)
    assert again.picked(SYNC) == picking(SYNC)[0].lr
    (table,) = tables(again, compared(10), 10)
    columns = {str(column.header): list(column.cells) for column in table.columns}
    assert columns["strategy"] == ["sync", "ssp:3"]
    assert columns["time x"] == ["1.000", "0.660"]
    assert columns["lost"][1].startswith("+0.10")
    assert columns["seeds"][1] == "2 of 10"


def test_a_run_that_broke_off_counts_as_the_worst(tmp_path: Path) -> None:
    store = Store(tmp_path / "recipes.jsonl")
    cell = Cell(setting=SYNC, lr=0.1, seed=0)
    store.add(cell, [], wall_s=1.0)
    for other in picking(SYNC):
        store.add(other, curve(50.0), wall_s=1.0)
    store.add(Cell(setting=SYNC, lr=picking(SYNC)[0].lr, seed=1), [], wall_s=1.0)
    again = Store(tmp_path / "recipes.jsonl")
    assert again.final(cell) == -math.inf
    (table,) = tables(again, compared(10), 10)
    assert list(table.columns[4].cells) == ["-inf"]
