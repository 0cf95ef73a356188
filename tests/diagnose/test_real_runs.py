"""The same on real processes: causes drawn from a seed, as ``benchmarks/diagnose_injected.py`` does."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from diagnose_injected import drawn, faulty, judged

from paceline.diagnose.verdict import diagnose
from paceline.runs import read_run

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def test_injected_causes_are_named_and_clean_runs_accuse_nobody(tmp_path):
    result = judged(drawn(11, injected=10, clean=6, lags=2), tmp_path)
    assert result["right"] >= 11, result["wrong"]
    assert not result["accused"], result["wrong"]


def test_a_rank_that_sleeps_100_ms_in_backward_is_named_under_all_reduce(tmp_path):
    case = faulty(
        random.Random(0), "backward", strategy="sync:allreduce", phase="backward",
        pattern="persistent", added_s=[0.1] * 60,
    )  # fmt: skip
    case = {**case, "workers": 4, "rank": 2, "windows": 60}
    assert judged([case], tmp_path)["right"] == 1
    (tmp_path / "elsewhere").mkdir()
    for path in (tmp_path / "backward").glob("rank-*.jsonl"):
        shutil.copy(path, tmp_path / "elsewhere")
    (finding,) = diagnose(read_run(tmp_path / "elsewhere")).findings
    assert (finding.ranks, finding.phase, finding.pattern) == ((2,), "backward", "persistent")
    assert finding.figures["excess_s"] == pytest.approx(0.1, rel=0.1)
