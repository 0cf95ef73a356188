"""A directory that is not whole: what can be read is judged, what is missing is said, in sentences."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from diagnose.fabricated import Case, recorded
from paceline.cli import paceline
from paceline.errors import UsageError
from paceline.replay.recorded import recorded as replayable

SLOW = Case(windows=60, jitter=0.02, faults=((2, "forward", np.full(60, 0.05)),))
DAMAGES = {
    "torn": b'{"format_version": 1, "request": {"scr',
    "binary": b"\xee\xff\x00",
    "a list": b"[1, 2]",
    "other tables": b'{"host": null, "request": 3}',
}


def invoke(*words):
    return CliRunner().invoke(paceline, [str(one) for one in words])


@pytest.fixture(params=DAMAGES)
def damaged(tmp_path, request):
    run = recorded(tmp_path, SLOW)
    (run / "run.json").write_bytes(DAMAGES[request.param])
    return run


def test_a_run_whose_summary_is_damaged_is_judged_by_its_records(damaged):
    done = invoke("diagnose", damaged)
    assert done.exit_code == 1
    assert done.stdout.startswith("Rank 2 is slow in forward (persistent)")
    assert "run.json cannot be read" in done.stdout


def test_its_report_and_its_simulation_say_what_is_missing(damaged):
    done = invoke("report", damaged)
    assert done.exit_code == 0
    assert "run.json cannot be read" in done.stderr
    assert "run.json cannot be read" in (damaged / "report.html").read_text()
    done = invoke("simulate", "--from", damaged, "--strategies", "sync")
    assert done.exit_code == 0
    assert "run.json cannot be read" in done.stderr


def test_it_cannot_be_replayed_and_the_reason_is_said(damaged):
    with pytest.raises(UsageError, match=r"cannot be read .*Without its command line"):
        replayable(damaged)


def test_a_summary_without_what_a_replay_needs_is_refused(tmp_path):
    run = recorded(tmp_path, SLOW)
    (run / "run.json").write_text(json.dumps({"request": {}}))
    with pytest.raises(UsageError, match="threads not there"):
        replayable(run)


@pytest.mark.parametrize("words", [["diagnose"], ["report"], ["replay"], ["simulate", "--from"]])
def test_a_trace_that_is_a_directory_is_one_sentence(tmp_path, words):
    run = recorded(tmp_path, SLOW, summary={"request": {}})
    (run / "rank-0.jsonl").unlink()
    (run / "rank-0.jsonl").mkdir()
    error = invoke(*words, run).exception
    assert isinstance(error, UsageError)
    assert "rank-0.jsonl: cannot be read as a trace: Is a directory" in str(error)


@pytest.mark.parametrize(("key", "word"), [("emulate", "emulated"), ("virtual", "simulated")])
def test_whose_timing_it_is_is_part_of_the_evidence(tmp_path, key, word):
    summary = {"request": {key: "examples/cluster_straggler.toml"}}
    shown = invoke("diagnose", recorded(tmp_path, SLOW, summary=summary)).stdout
    assert f"the timing is {word}: it is that of examples/cluster_straggler.toml" in shown


def test_of_a_machines_own_timing_nothing_is_said(tmp_path):
    summary = {"request": {"emulate": None, "virtual": None}}
    assert (
        "the timing is" not in invoke("diagnose", recorded(tmp_path, SLOW, summary=summary)).stdout
    )
