"""The report says by how much replicas drifted."""

from __future__ import annotations

from pathlib import Path

from paceline import trace
from paceline.report.drifts import apart, drift_section
from paceline.report.page import render_page
from paceline.runs import Run, read_run
from synthetic_runs import setup, step, write_run


def drifting(directory: Path) -> Run:
    """Two replicas after two passes, 1 % and 2 % from their mean, then 3 % and one of them lost."""
    head = setup(strategy="local:inf", topology="replicas", world_size=2)
    distances = {0: (0.1, 0.3), 1: (0.2, None)}
    ranks = {
        rank: [
            head,
            *(step(time_s=100.0 + n, clock=n) for n in range(6)),
            *(
                trace.Drift(time_s=103.0 + n, pass_id=n, version=3, distance=far, size=10.0)
                for n, far in enumerate(both)
            ),
        ]
        for rank, both in distances.items()
    }
    return read_run(write_run(directory, ranks))


def test_each_workers_distance_is_shown_relative_to_the_mean(tmp_path: Path) -> None:
    run = drifting(tmp_path / "run")
    assert apart(run.ranks[0]) == [(1, 0.01), (2, 0.03)]
    section = drift_section({"local:inf": [run]})
    assert section is not None
    assert section.rows == [
        ["worker 0", "0.3", "10", "3.00%"],
        ["worker 1", "not finite", "10", "–"],
    ]
    page = render_page([run])
    assert "Replicas apart" in page
    assert "3.00%" in page


def test_a_run_without_replicas_has_no_such_section(tmp_path: Path) -> None:
    ranks = {rank: [setup(world_size=2), step(), step(clock=1)] for rank in range(2)}
    run = read_run(write_run(tmp_path / "run", ranks))
    assert drift_section({"async": [run]}) is None
    assert "Replicas apart" not in render_page([run])
