"""What happens to the others when a worker or the server dies or falls silent (script.py strikes)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from paceline import events
from paceline.runs import Run, read_run
from support.leaks import assert_nothing_is_left
from support.runs import run_script

SCRIPT = Path(__file__).parent / "script.py"
BATCHES = 48
POINTS = ("forward", "backward", "push", "wait", "pull", "evaluate")
SURVIVING = ("async", "ssp:3", "backup:1")
FRAGMENTED = "diloco:8:0.7:0.9:2"
STOPPING = ("sync:server", "ssp:0", "sync:allreduce", "local:4", FRAGMENTED)
EVICT_AFTER_S = 3.0
NEVER = tuple((s, "pull") for s in ("sync:allreduce", "local:4", FRAGMENTED))  # nothing is pulled
pytestmark = pytest.mark.timeout(150)

QUICK_SURVIVING = {
    ("async", "evaluate", 1), ("ssp:3", "backward", 0), ("backup:1", "wait", 2),
}  # fmt: skip
QUICK_STOPPING = {
    ("sync:server", "wait", 2), ("sync:allreduce", "push", 0),
}  # fmt: skip


def _cells(strategies: tuple[str, ...], quick: set[tuple[str, str, int]]) -> list[Any]:
    """The quick cells, then (for test-full) every point x strategy, on alternating ranks."""
    rest = [(s, p, (i * 3 + j) % 4) for i, s in enumerate(strategies) for j, p in enumerate(POINTS)]
    rest = [cell for cell in rest if cell[:2] not in NEVER]
    full = [pytest.param(*cell, marks=pytest.mark.full) for cell in rest if cell not in quick]
    return [pytest.param(*cell) for cell in sorted(quick)] + full


def struck(tmp_path: Path, strategy: str, *arguments: str, **options: Any) -> Any:
    """Run the script on four workers; (result, seconds from the strike to the run's end)."""
    marks = tmp_path / "marks"
    marks.mkdir()
    result = run_script(
        SCRIPT,
        [str(marks), "--batches", str(BATCHES), *arguments],
        workers=4,
        strategy=strategy,
        evict_after_s=options.pop("evict_after_s", EVICT_AFTER_S),
        **options,
    )
    ended_s = time.monotonic()
    struck_s = float((marks / "struck").read_text())
    finished = sorted(int(p.name.split("-")[1]) for p in marks.glob("finished-*"))
    assert_nothing_is_left(result)
    return result, ended_s - struck_s, finished


def decided(run: Run) -> list[list[int]]:
    """Batches of decided windows, pass by pass."""
    passes: list[list[int]] = []
    running: dict[int, tuple[int, ...]] = {}
    opened: set[int] = set()
    for decision in run.decisions:
        if isinstance(decision, events.Request) and decision.pass_id not in opened:
            opened.add(decision.pass_id)
        if isinstance(decision, events.Start):
            running[decision.rank] = decision.batches
            if len(passes) < len(opened):
                passes.append([])
        elif isinstance(decision, events.Update | events.Drop):
            ranks = decision.ranks if isinstance(decision, events.Update) else (decision.rank,)
            for rank in ranks:
                passes[-1].extend(running.pop(rank))
    return passes


@pytest.mark.parametrize(("strategy", "point", "victim"), _cells(SURVIVING, QUICK_SURVIVING))
def test_a_killed_worker_does_not_stop_the_others(
    tmp_path: Path, strategy: str, point: str, victim: int
) -> None:
    result, _, finished = struck(tmp_path, strategy, "--point", point, "--victim", str(victim))
    assert finished == [rank for rank in range(4) if rank != victim], result.stderr[-3000:]
    assert result.exit_code == 0, result.stderr[-3000:]
    assert f"rank {victim}" in result.stderr
    assert "clock" in result.stderr
    run = read_run(result.out)
    for batches in decided(run):
        assert sorted(batches) == list(range(BATCHES)), "every batch in exactly one decided push"
    returned = [d.returned for d in run.decisions if isinstance(d, events.Release)]
    for batch in (batch for batches in returned for batch in batches):
        assert str(batch) in result.stderr


@pytest.mark.parametrize(("strategy", "point", "victim"), _cells(STOPPING, QUICK_STOPPING))
def test_a_killed_worker_stops_sync_within_10_seconds_naming_the_rank(
    tmp_path: Path, strategy: str, point: str, victim: int
) -> None:
    result, seconds, finished = struck(
        tmp_path, strategy, "--point", point, "--victim", str(victim)
    )
    assert finished == []
    assert seconds < 10
    assert result.exit_code == 3, result.stderr[-3000:]
    assert f"rank {victim}" in result.stderr


@pytest.mark.parametrize(
    "strategy",
    [
        "async",
        *(
            pytest.param(s, marks=pytest.mark.full)
            for s in ("sync:server", "ssp:3", "backup:1", "sync:allreduce")
        ),
    ],
)
def test_a_killed_server_stops_every_worker_within_10_seconds(
    tmp_path: Path, strategy: str
) -> None:
    result, seconds, finished = struck(
        tmp_path, strategy, "--point", "forward", "--method", "server"
    )
    assert finished == []
    assert seconds < 10
    assert result.exit_code == 3, result.stderr[-3000:]
    assert "server" in result.stderr


@pytest.mark.full  # the quick one is evicted and continues: test_a_stopped_worker_that_continues_later
@pytest.mark.parametrize("strategy", ["ssp:3", "async"])
def test_a_stopped_worker_is_evicted_and_the_others_go_on(tmp_path: Path, strategy: str) -> None:
    result, _, finished = struck(tmp_path, strategy, "--point", "forward", "--method", "stop")
    assert finished == [0, 1, 3], result.stderr[-3000:]
    assert result.exit_code == 0
    assert "rank 2" in result.stderr
    assert "silent" in result.stderr
    for batches in decided(read_run(result.out)):
        assert sorted(batches) == list(range(BATCHES))


@pytest.mark.parametrize(
    "strategy", ["sync:server", pytest.param("sync:allreduce", marks=pytest.mark.full)]
)
def test_a_stopped_worker_is_named_and_sync_stops(tmp_path: Path, strategy: str) -> None:
    result, seconds, finished = struck(tmp_path, strategy, "--point", "forward", "--method", "stop")
    assert finished == []
    assert seconds < EVICT_AFTER_S + 10
    assert result.exit_code == 3
    assert "rank 2" in result.stderr


@pytest.mark.parametrize(
    "strategy", ["async", *(pytest.param(s, marks=pytest.mark.full) for s in ("ssp:3", "ssp:0"))]
)
def test_a_worker_with_loader_processes_is_missed_when_killed(
    tmp_path: Path, strategy: str
) -> None:
    """Forked DataLoader children hold the dead worker's sockets open: end-of-file never comes."""
    result, seconds, finished = struck(
        tmp_path, strategy, "--point", "forward", "--loader-workers", "2"
    )
    assert "rank 2" in result.stderr
    if strategy == "ssp:0":
        assert (finished, result.exit_code) == ([], 3)
        assert seconds < 10
        return
    assert finished == [0, 1, 3], result.stderr[-3000:]
    assert result.exit_code == 0
    for batches in decided(read_run(result.out)):
        assert sorted(batches) == list(range(BATCHES))


@pytest.mark.parametrize("strategy", ["async", pytest.param("ssp:3", marks=pytest.mark.full)])
def test_a_stopped_worker_that_continues_later_harms_nothing(tmp_path: Path, strategy: str) -> None:
    arguments = ["--point", "forward", "--method", "pause", "--pause-s", str(EVICT_AFTER_S + 1)]
    result, _, finished = struck(tmp_path, strategy, *arguments, "--step-s", "0.25")
    assert finished == [0, 1, 3], result.stderr[-3000:]
    assert result.exit_code == 0
    assert "[2] stopped: rank 2" in result.stderr, result.stderr[-3000:]
    for batches in decided(read_run(result.out)):
        assert sorted(batches) == list(range(BATCHES))


BEFORE = """
import os, signal, sys, torch, paceline
rank = paceline.current_launch().rank
if rank == 1:
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(0)
model = torch.nn.Linear(2, 2)
paceline.Worker(model, torch.optim.SGD(model.parameters(), lr=0.1))
"""


@pytest.mark.parametrize(
    ("how", "strategy"),
    [
        ("kill", "sync"),
        pytest.param("kill", "async", marks=pytest.mark.full),
        pytest.param("exit", "sync:allreduce", marks=pytest.mark.full),
    ],
)
def test_a_worker_that_ends_before_it_joins_stops_those_who_wait(how: str, strategy: str) -> None:
    result = run_script(BEFORE, [how], workers=3, strategy=strategy, timeout_s=60)
    assert result.exit_code == 3, result.stderr[-3000:]
    assert "before it made its paceline.Worker" in result.stderr
    assert "rank 1" in result.stderr
    assert_nothing_is_left(result)
