"""``paceline diagnose``: what it prints, its exit codes, and of what little it can judge."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from diagnose.fabricated import Case, recorded
from paceline.cli.diagnose import command
from paceline.errors import UsageError
from paceline.runs import read_run

SLOW = Case(faults=((2, "forward", np.full(120, 0.01)),), jitter=0.02)  # 13 % of the time


def said(*arguments, code=0):
    result = CliRunner().invoke(command, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_the_verdict_comes_first_then_evidence_and_what_to_do(tmp_path):
    shown = said(recorded(tmp_path, SLOW), code=1)
    assert shown.startswith("Rank 2 is slow in forward (persistent). It costs ")
    assert shown.index("Evidence") < shown.index("Next") < shown.index("What if")
    assert "rank 2 as fast as the others" in shown
    assert "strategy async" in shown


@pytest.mark.parametrize(("least", "code"), [("info", 1), ("minor", 1), ("major", 0)])
def test_the_exit_code_follows_fail_on(tmp_path, least, code):
    said(recorded(tmp_path, SLOW), "--fail-on", least, code=code)


def test_all_well_and_undecided_have_their_exit_codes(tmp_path):
    assert said(recorded(tmp_path / "a", Case())).startswith("All well")
    assert said(recorded(tmp_path / "b", Case(windows=8)), code=3).startswith("Undecided, because")


def test_json_has_a_schema_and_every_figure(tmp_path):
    document = json.loads(said(recorded(tmp_path, SLOW), "--json", code=1))
    assert (document["schema"], document["status"]) == (1, "finding")
    (finding,) = document["findings"]
    assert (finding["cause"], finding["ranks"], finding["phase"]) == ("slow-rank", [2], "forward")
    assert finding["figures"]["excess_s"] == pytest.approx(0.01, rel=0.2)
    assert document["what_if"][0]["time"] < 1


def test_traces_alone_will_do_wherever_they_are(tmp_path):
    run = recorded(tmp_path, SLOW, summary={"host": {"cores": 2}})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in run.glob("rank-*.jsonl"):
        shutil.copy(path, elsewhere)
    there = said(elsewhere, "--json", code=1)
    assert json.loads(there)["findings"] == json.loads(said(run, "--json", code=1))["findings"]


def test_a_run_that_goes_on_is_judged_as_far_as_it_has_come(tmp_path):
    run = recorded(tmp_path, SLOW)
    path = run / "rank-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:120]) + lines[120][:30])
    assert len(read_run(run).ranks[1].steps) < 60
    assert "Rank 2 is slow in forward" in said(run, code=1)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("rank:2", "rank 2 as fast as the others"),
        ("link:0.5", "exchanging takes 0.5 of the time"),
        ("link:1:0.5", "what rank 1 takes longer to exchange"),
        ("strategy:ssp:8", "strategy ssp:8"),
    ],
)
def test_questions_are_answered(tmp_path, question, answer):
    assert answer in said(recorded(tmp_path, SLOW), "--what-if", question, code=1)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--what-if", "rank:9"], "one of the ranks 0, 1, 2, 3"),
        (["--what-if", "luck:2"], "as in rank:2"),
        (["--what-if", "link:fast"], "as in rank:2"),
        (["--what-if", "link:-1"], "a factor >= 0"),
        (["--what-if", "strategy:backup:4"], "fewer spares than 4"),
        (["--what-if", "strategy:fast"], "strategy='fast'"),
    ],
)
def test_mistakes_are_refused_with_the_remedy(tmp_path, arguments, remedy):
    with pytest.raises(UsageError) as caught:
        said(recorded(tmp_path, SLOW), *arguments)
    assert remedy in str(caught.value)


def test_no_run_there(tmp_path):
    with pytest.raises(UsageError, match="no run here"):
        said(tmp_path)


def begun(tmp_path, case=SLOW):
    return recorded(tmp_path, case, summary={"request": {}, "ended": None})


def test_a_run_that_still_goes_on_is_judged_so_far(tmp_path):
    assert said(begun(tmp_path), code=1).startswith("So far: Rank 2 is slow in forward")
    shown = json.loads(said(begun(tmp_path), "--json", code=1))
    assert shown["going_on"] is True
    assert not shown["findings"][0]["sentence"].startswith("So far")


def test_a_run_that_has_recorded_nothing_yet_is_undecided(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"ended": None}))
    assert said(run, code=3).startswith("So far: Undecided, because the run has recorded nothing")
    (run / "rank-0.jsonl").touch()
    assert json.loads(said(run, "--json", code=3))["status"] == "undecided"


def test_of_a_directory_of_runs_the_one_is_taken_and_several_are_named(tmp_path):
    recorded(tmp_path / "a", SLOW)
    assert "Rank 2 is slow" in said(tmp_path / "a", code=1)
    shutil.copytree(tmp_path / "a" / "run", tmp_path / "a" / "other")
    with pytest.raises(UsageError, match=r"holds 2 runs. Diagnose one of them:") as caught:
        said(tmp_path / "a")
    assert f"paceline diagnose {tmp_path / 'a' / 'run'}" in str(caught.value)


def test_a_strategy_that_is_nearly_one_is_asked_back(tmp_path):
    with pytest.raises(UsageError, match=r"Did you mean 'ssp:3'\?"):
        said(recorded(tmp_path, SLOW), "--what-if", "strategy:spp:3")
