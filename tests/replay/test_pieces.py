"""What a replay takes over, refuses and says: without a process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline import events, trace
from paceline.encounters import Differs, Look
from paceline.errors import UsageError
from paceline.replay.differences import Difference, difference, difference_in_orders
from paceline.replay.recorded import below, place_for, recorded, request_of
from paceline.replay.standing import as_table, standings
from paceline.replay.verdict import also_differing, first_difference
from synthetic_runs import Ring, setup, simulated_run, step, write_run

PULL = events.Pull(time_s=1.0, rank=2)
PUSH = events.Push(time_s=1.0, rank=2, weight=4.0, unit=4.0, gradient_norm=0.25)


def test_records_differ_by_kind_then_by_field_and_never_by_time() -> None:
    assert difference(PULL, events.Pull(time_s=9.0, rank=2)) is None
    assert difference(PULL, PUSH) == Difference(field="what it did", recorded="pull", now="push")
    other = events.Push(time_s=1.0, rank=2, weight=4.0, unit=4.0, gradient_norm=0.5)
    named = Difference(field="gradient_norm of its push", recorded="0.25", now="0.5")
    assert difference(PUSH, other) == named


def test_orders_may_be_missing_at_the_end_of_a_torn_record_only() -> None:
    orders = [events.Lease(rank=0, batches=(1,), last=False, reason="on demand")]
    assert difference_in_orders([], orders, torn=True) is None
    assert difference_in_orders([], orders, torn=False) is not None
    assert difference_in_orders(orders, [], torn=True) is not None


def test_who_stood_where_when_a_version_was_made() -> None:
    start = events.Start(rank=1, clock=3, version=5, batches=(7, 8), reason="")
    lease = events.Lease(rank=1, batches=(7, 8, 9), last=False, reason="")
    update = events.Update(
        ranks=(0,), clocks=(2,), lags=(0,), version=6, divisor=1.0, lr_scale=1.0, weight=4.0,
        progress=6, reason="",
    )  # fmt: skip
    joins = [events.Join(time_s=0.0, rank=rank) for rank in range(3)]
    gone = events.Release(rank=2, clock=1, returned=(), reason="its process died")
    later = events.Pull(time_s=2.0, rank=0)
    found = standings([*joins, gone, lease, start, update, later], until=6)
    assert [(one.rank, one.clock, one.version, one.batches) for one in found] == [
        (0, 3, -1, []), (1, 3, 5, [7, 8, 9]), (2, 0, -1, []),
    ]  # fmt: skip
    assert [one.doing for one in found] == [
        "between windows",
        "computing",
        "gone: its process died",
    ]
    assert "1     3      5           7, 8, 9          computing" in as_table(found)


def test_a_run_of_another_launcher_is_refused_in_a_sentence(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {0: [setup(), step()]})
    (run / "run.json").unlink(missing_ok=True)
    with pytest.raises(UsageError, match="another launcher"):
        recorded(run)
    with pytest.raises(UsageError, match="no run here"):
        recorded(tmp_path / "nowhere")


@pytest.mark.parametrize("gone", ["rank-1.jsonl", "server.jsonl"])
def test_a_run_that_was_copied_in_part_is_refused_by_the_file_that_is_gone(
    tmp_path: Path, gone: str
) -> None:
    run = described(
        write_run(tmp_path / "run", {rank: [setup(world_size=2), step()] for rank in (0, 1)})
    )
    (run / "server.jsonl").touch()
    (run / gone).unlink()
    with pytest.raises(UsageError, match=f"{gone} not found"):
        recorded(run)


def described(run: Path, **request: Any) -> Path:
    whole = {
        "script": "train.py", "args": [], "workers": 2, "strategy": "async", "overrides": {},
        "lr_factor": 1.0, "seed": 3, "resume": None, "emulate": "slow.toml", **request,
    }  # fmt: skip
    summary = {"request": whole, "threads": 2, "exit_code": 0, "directory": "/there"}
    (run / "run.json").write_text(json.dumps(summary))
    return run


def test_the_recorded_command_line_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    described(
        simulated_run(run, Ring(windows=5)), args=["--lr", "0.1", f"--log={run}/log", f"{run}/x"]
    )
    monkeypatch.chdir(tmp_path)
    before = recorded(run)
    with pytest.raises(UsageError, match=r"train.py: not found from .* Replay from /there"):
        request_of(before, out=tmp_path / "again", until=None, quiet=False)
    (tmp_path / "train.py").write_text("")
    request = request_of(before, out=tmp_path / "again", until=None, quiet=False)
    assert (request.workers, request.seed, request.threads, request.emulate) == (2, 3, 2, None)
    assert request.args == ("--lr", "0.1", f"--log={tmp_path}/again/log", f"{tmp_path}/again/x")


def test_where_it_may_stop_and_where_it_does(tmp_path: Path) -> None:
    run = described(simulated_run(tmp_path / "run", Ring(windows=5)))
    before = recorded(run)
    first, last = before.versions
    assert before.until(None) is None
    assert before.until(last) == last
    for wrong in (first - 1, last + 1):
        with pytest.raises(UsageError, match=f"expected {first} to {last}"):
            before.until(wrong)
    summary = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**summary, "exit_code": None}))
    assert recorded(run).until(None) == last, "the launcher did not live to say how it ended"


def test_a_checkpoint_that_is_gone_is_named(tmp_path: Path) -> None:
    run = described(
        simulated_run(tmp_path / "run", Ring(windows=5)), resume="/gone", script=__file__
    )
    with pytest.raises(UsageError, match="/gone: the checkpoint"):
        request_of(recorded(run), out=tmp_path / "again", until=None, quiet=False)


def test_nothing_is_written_into_the_run_or_over_an_earlier_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = tmp_path / "run", tmp_path / "run-replay"
    run.mkdir()
    assert place_for(run, None) == out
    out.mkdir()
    assert place_for(run, None) == tmp_path / "run-replay-2"
    with pytest.raises(UsageError, match="never changed"):
        place_for(run, run / "inside")
    assert below(run / "a" / "b", run, out) == out / "a" / "b"
    assert below(tmp_path / "other", run, out) == tmp_path / "other"
    monkeypatch.chdir(run)
    assert below(Path("0.1"), run, out) == Path("0.1")


def test_a_look_is_on_record_as_it_was() -> None:
    look = Look(time_s=1.5, rank=1, version=7, what="parameters")
    assert trace.decode(trace.encode(look)) == look


def test_a_difference_is_said_once_with_all_the_ranks_that_met_it(tmp_path: Path) -> None:
    def differs(rank: int, clock: int) -> Differs:
        return Differs(
            time_s=1.0, file=f"rank-{rank}.jsonl", line=9, rank=rank, clock=clock, field="loss",
            recorded="1.0", now="2.0",
        )  # fmt: skip

    out = write_run(
        tmp_path, {r: [setup(), differs(r, clock)] for r, clock in enumerate((4, 3, 3, 3))}
    )
    first = first_difference(out)
    assert first == differs(1, 3)
    assert also_differing(first, out) == " (there ranks 2, 3 differ too)"
    assert also_differing(differs(0, 4), out) == ""
