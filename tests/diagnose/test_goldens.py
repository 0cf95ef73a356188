"""Production traces with known causes (ByteDance, OSDI 2025; see the README beside them)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.diagnose.stages import Operation, diagnose_pipeline, pipeline_of

GOLDENS = Path(__file__).resolve().parents[3] / "shared" / "goldens"
FOUND = next((p for p in (GOLDENS, Path("/work/shared/goldens")) if p.exists()), None)
COLUMNS = ("rank", "dp_rank", "stage", "step", "optype", "duration")
pytestmark = pytest.mark.skipif(FOUND is None, reason="the golden traces are not on this machine")


def judged(trace):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow reads the golden traces")
    table = parquet.read_table(FOUND / f"trace-{trace}.parquet", columns=list(COLUMNS)).to_pydict()
    rows = zip(*(table[name] for name in COLUMNS), strict=True)
    operations = [
        Operation(rank=rank, replica=replica, stage=stage, step=step, kind=kind, duration_s=time_s)
        for rank, replica, stage, step, kind, time_s in rows
    ]
    return diagnose_pipeline(trace, pipeline_of(operations))


def published(trace):
    return json.loads((FOUND / f"result-{trace}.json").read_text())["blocking_slowdown"]


def test_the_slowed_worker_is_named_with_its_phase_and_what_it_costs():
    (finding,) = judged("AR").findings
    assert (finding.cause, finding.ranks, finding.pattern) == ("slow-rank", (0,), "persistent")
    assert finding.phase == "forward and backward"
    assert finding.figures["slowdown"] == pytest.approx(published("AR"), rel=0.15)


def test_a_stage_with_more_work_accuses_no_worker():
    (finding,) = judged("ST").findings
    assert (finding.cause, finding.ranks) == ("uneven-stages", ())
    assert "All of the last stage" in finding.sentence
