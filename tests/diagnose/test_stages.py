"""A slow worker of a pipeline against a slow stage, on made operations."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.diagnose.stages import Operation, diagnose_pipeline, pipeline_of


def operations(*, slow=None, heavy=None, replicas=4, stages=3, steps=30, micro_batches=8):
    rng = np.random.default_rng(0)
    for step in range(steps):
        for replica in range(replicas):
            for stage in range(stages):
                factor = (3.0 if (replica, stage) == slow else 1.0) * (
                    2.0 if stage == heavy else 1.0
                )
                for kind, time_s in (("forward-compute", 0.1), ("backward-compute", 0.2)):
                    for _ in range(micro_batches):
                        yield Operation(
                            rank=replica * stages + stage, replica=replica, stage=stage, step=step + 5,
                            kind=kind, duration_s=time_s * factor * rng.uniform(0.97, 1.03),
                        )  # fmt: skip
                yield Operation(
                    rank=0, replica=replica, stage=stage, step=step + 5, kind="backward-recv",
                    duration_s=99.0,
                )  # fmt: skip


def test_a_slow_worker_is_named_with_the_slowdown_of_the_whole_pipeline():
    (finding,) = diagnose_pipeline("made", pipeline_of(operations(slow=(2, 1)))).findings
    assert (finding.ranks, finding.phase) == ((7,), "forward and backward")
    expected = (3 + 2 / 8) / (1 + 2 / 8)  # own work of 8 micro-batches, and one of the two others
    assert finding.figures["slowdown"] == pytest.approx(expected, rel=0.02)


def test_a_heavy_stage_is_no_workers_fault():
    (finding,) = diagnose_pipeline("made", pipeline_of(operations(heavy=2))).findings
    assert (finding.cause, finding.ranks) == ("uneven-stages", ())
    assert finding.sentence.startswith("All of the last stage")
    (middle,) = diagnose_pipeline("made", pipeline_of(operations(heavy=1))).findings
    assert middle.sentence.startswith("All of stage 1")


def test_equal_stages_are_well():
    assert diagnose_pipeline("made", pipeline_of(operations())).status == "well"
