"""The Perfetto export says what the trace says: parsed back, each track sums up to its phase."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from click.testing import CliRunner

from diagnose.fabricated import Case, recorded
from paceline.cli.report import command
from paceline.diagnose.verdict import diagnose
from paceline.errors import UsageError
from paceline.report.page import render_page
from paceline.runs import read_run
from synthetic_runs import Ring, simulated_run

TRACKS = ("compute", "wait", "exchange", "input")


def exported(directory, tmp_path):
    out = tmp_path / "lanes.json"
    result = CliRunner().invoke(
        command, [str(directory), "--perfetto", str(out)], catch_exceptions=False
    )
    assert result.output.strip() == str(out)
    return json.loads(out.read_text())["traceEvents"]


def tracks(events):
    """(process, track) -> its events, by their names."""
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            process = names["process_name", event["pid"], 0]
            found[process, names["thread_name", event["pid"], event["tid"]]].append(event)
    return found


@pytest.mark.parametrize("ring", [Ring(), Ring(staleness=0, strategy="sync")])
def test_each_track_sums_up_to_what_the_trace_says(tmp_path, ring):
    directory = simulated_run(tmp_path / "run", ring)
    found = tracks(exported(directory, tmp_path))
    run = read_run(directory)
    for rank in run.ranks:
        passes_s = rank.passes[0].time_s - rank.passes[0].started_s
        sums = {
            track: sum(e["dur"] for e in found[f"worker {rank.rank}", track]) * 1e-6
            for track in TRACKS
        }
        wanted = {
            "compute": sum(s.forward_s + s.backward_s for s in rank.steps),
            "exchange": sum(s.pull_s + s.exchange_s for s in rank.steps),
            "input": sum(s.data_s for s in rank.steps),
        }
        wanted["wait"] = passes_s - sum(wanted.values())
        assert sums == pytest.approx(wanted, abs=2e-6 * len(rank.steps))


def test_computing_says_which_half_it_is_where_the_trace_does(tmp_path):
    directory = simulated_run(tmp_path / "run", Ring())
    found = tracks(exported(directory, tmp_path))
    for rank in read_run(directory).ranks:
        own = found[f"worker {rank.rank}", "compute"]
        for name in ("forward", "backward"):
            sums_s = sum(e["dur"] for e in own if e["name"] == name) * 1e-6
            wanted_s = sum(getattr(step, f"{name}_s") for step in rank.steps)
            assert sums_s == pytest.approx(wanted_s, abs=2e-6 * len(rank.steps))
        for before, after in pairwise(own):
            assert before["ts"] + before["dur"] <= after["ts"] + 0.01


def test_with_json_it_says_what_was_written(tmp_path):
    directory, out = recorded(tmp_path, Case(windows=30)), tmp_path / "lanes.json"
    words = [str(directory), "--perfetto", str(out), "--json"]
    said = json.loads(CliRunner().invoke(command, words, catch_exceptions=False).output)
    assert said == {
        "schema": 1, "perfetto": str(out), "run": str(directory),
        "events": len(json.loads(out.read_text())["traceEvents"]),
    }  # fmt: skip


def test_under_a_collective_the_shortest_call_is_the_exchange(tmp_path):
    directory = recorded(tmp_path, Case(windows=30))
    found = tracks(exported(directory, tmp_path))
    run = read_run(directory)
    for rank in run.ranks:
        both = [e for t in ("wait", "exchange") for e in found[f"worker {rank.rank}", t]]
        total_s = sum(step.exchange_s for step in rank.steps)
        assert sum(e["dur"] for e in both) * 1e-6 == pytest.approx(total_s, abs=1e-4)
    assert ("server", "updates") not in found


def test_the_server_has_a_track_on_which_updates_do_not_overlap(tmp_path):
    events = exported(simulated_run(tmp_path / "run", Ring()), tmp_path)
    updates = tracks(events)["server", "updates"]
    assert len(updates) == 4 * 40
    assert updates[0]["name"] == "version 1"
    for before, after in pairwise(updates):
        assert before["ts"] + before["dur"] <= after["ts"] + 0.01


def test_one_run_only(tmp_path):
    runs = [str(simulated_run(tmp_path / name, Ring(windows=3))) for name in "ab"]
    with pytest.raises(UsageError, match="one run"):
        CliRunner().invoke(command, [*runs, "--perfetto", "x.json"], catch_exceptions=False)


def test_the_report_says_the_sentence_of_diagnose(tmp_path):
    directory = simulated_run(
        tmp_path, Ring(windows=60, staleness=0, strategy="sync", hiccup=0.0, slow={1: 2.0})
    )
    run = read_run(directory)
    page, diagnosis = render_page([run]), diagnose(run)
    assert diagnosis.verdict.startswith("Rank 1 is slow")
    assert diagnosis.verdict in page
    assert all(one.change in page for one in diagnosis.what_if)
