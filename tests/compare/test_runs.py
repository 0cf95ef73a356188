"""A run is read back whole while it runs and after it, and what cannot be read says why."""

import json

import pytest

from paceline import events, trace
from paceline.errors import UsageError
from paceline.runs import find_runs, read_run
from synthetic_runs import Ring, setup, simulated_run, step, write_run


def test_everything_recorded_comes_back_typed(tmp_path):
    note = trace.Note(time_s=101.0, kind="died", rank=1, text="rank 1 died")
    records = [setup(world_size=2), step(clock=0), step(clock=1, time_s=101.0), note]
    decisions = [events.Pull(time_s=1.0, rank=0), trace.Note(time_s=9, kind="i", rank=-1, text="x")]
    write_run(tmp_path, {0: records, 1: [setup()]}, decisions=decisions, summary={"threads": 1})

    run = read_run(tmp_path)

    assert run.setup == setup(world_size=2)
    assert [own.clock for own in run.ranks[0].steps] == [0, 1]
    assert run.decisions == (decisions[0],)
    assert [note.text for note in run.notes] == ["x", "rank 1 died"]
    assert run.summary == {"threads": 1}


def test_ranks_are_in_numeric_order(tmp_path):
    write_run(tmp_path, {rank: [setup()] for rank in (10, 2, 0)})
    assert [rank.rank for rank in read_run(tmp_path).ranks] == [0, 2, 10]


def test_a_run_that_still_writes_is_read_up_to_its_last_whole_line(tmp_path):
    write_run(tmp_path, {0: [setup(), step()]})
    with (tmp_path / "rank-0.jsonl").open("ab") as file:
        file.write(trace.encode(step(clock=1))[:-7])
    assert len(read_run(tmp_path).ranks[0].steps) == 1
    assert read_run(tmp_path).ranks[0].close is None


@pytest.mark.parametrize("records", [{}, {0: []}])
def test_no_run_and_a_run_without_records_are_told_apart(tmp_path, records):
    write_run(tmp_path, records)
    with pytest.raises(UsageError, match="nothing yet" if records else "no run here"):
        read_run(tmp_path)


def test_another_format_is_refused_by_its_number(tmp_path):
    write_run(tmp_path, {0: [setup()]})
    path = tmp_path / "rank-0.jsonl"
    head = json.loads(path.read_bytes().splitlines()[0])
    head[1] = 99
    path.write_bytes(json.dumps(head).encode() + b"\n")
    with pytest.raises(UsageError, match="trace format 99"):
        read_run(tmp_path)


@pytest.mark.parametrize("line", [b"not json\n", b'["step",1]\n', b'["nonsense",1]\n', b"7\n"])
def test_a_broken_line_is_named_by_file_and_number(tmp_path, line):
    write_run(tmp_path, {0: [setup()]})
    with (tmp_path / "rank-0.jsonl").open("ab") as file:
        file.write(line)
    with pytest.raises(UsageError, match=r"rank-0\.jsonl, line 3: not a record"):
        read_run(tmp_path)


def test_the_directory_of_a_compare_stands_for_its_runs(tmp_path):
    for name in ("sync-seed-0", "async-seed-0"):
        simulated_run(tmp_path / name, Ring(windows=3))
    (tmp_path / "sync-seed-0.log").write_text("")
    assert [path.name for path in find_runs(tmp_path)] == ["async-seed-0", "sync-seed-0"]
    assert find_runs(tmp_path / "sync-seed-0") == [tmp_path / "sync-seed-0"]
    assert find_runs(tmp_path / "none") == [tmp_path / "none"]
