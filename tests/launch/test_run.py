"""``paceline run`` on stand-in scripts: supervision, interruption, and nothing left behind.

The stand-ins make no Worker: what is tested is the launcher alone.
"""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from paceline.launch.request import RunRequest
from paceline.launch.run import run
from support.leaks import assert_nothing_is_left, processes_of
from support.runs import RunningRun, run_script, wait_for

FACTS = """
import json, os, random, sys, time, torch
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
print(json.dumps({name: os.environ[name] for name in names}))
print(random.random(), torch.rand(1).item(), torch.get_num_threads(), *sys.argv[1:])
print("a warning", file=sys.stderr)
time.sleep(1.5)
"""

WAITING = """
import os, pathlib, sys, time
rank, marks = os.environ["RANK"], pathlib.Path(sys.argv[1])
def mark(name, text=""):
    temporary = marks / f"{name}-{rank}.new"
    temporary.write_text(text)
    temporary.rename(marks / f"{name}-{rank}")
{more}
mark("ready", str(os.getpid()))
try:
    by_s = time.monotonic() + 60
    while time.monotonic() < by_s and not (marks / "go").exists():
        time.sleep(0.01)
finally:
    mark("flushed")
"""


def waiting(marks: Path, *, more: str = "", workers: int = 3) -> tuple[RunningRun, list[int]]:
    """A run whose workers wait for ``marks/go``, and their pids, once all are ready."""
    script = WAITING.replace("{more}", more)
    started = RunningRun(script, [str(marks)], workers=workers)
    pids = [int(wait_for(marks / f"ready-{rank}")) for rank in range(workers)]
    return started, pids


def flushed(marks: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in marks.glob("flushed-?"))


def test_workers_know_who_they_are_and_start_alike():
    finished = run_script(FACTS, ["--seed={seed}"], workers=3, seed=4)
    assert finished.exit_code == 0, finished.stderr
    ranks = [finished.lines(rank) for rank in range(3)]
    seen = [json.loads(lines[0]) for lines in ranks]
    assert [(s["RANK"], s["LOCAL_RANK"]) for s in seen] == [("0", "0"), ("1", "1"), ("2", "2")]
    assert {(s["WORLD_SIZE"], s["LOCAL_WORLD_SIZE"], s["MASTER_ADDR"]) for s in seen} == {
        ("3", "3", "127.0.0.1")
    }
    assert len({s["MASTER_PORT"] for s in seen}) == 1
    assert len({lines[1] for lines in ranks}) == 1
    assert ranks[0][1].endswith(" 1 --seed=4")
    assert all(f"[{rank}] a warning\n" in finished.stderr for rank in range(3))
    assert "script.py on 3 workers, 1 thread each, seed 4; recording in" in finished.stderr
    assert "all 3 workers finished" in finished.stderr
    assert_nothing_is_left(finished)

    summary = finished.summary
    assert summary["request"]["workers"] == 3
    assert summary["threads"] == 1
    assert summary["versions"]["torch"]
    assert summary["ended"] > summary["started"]
    assert [rank["fate"] for rank in summary["ranks"]] == ["finished"] * 3
    shares = summary["peak_pss_bytes_by_process"]
    assert set(shares) == {"rank 0", "rank 1", "rank 2", "server"}
    assert all(share > 2**20 for share in shares.values())
    assert 2**20 < summary["peak_pss_bytes"] <= sum(shares.values())


def test_survivors_survive_a_killed_worker(tmp_path):
    started, pids = waiting(tmp_path)
    os.kill(pids[1], signal.SIGKILL)
    (tmp_path / "go").touch()
    finished = started.finish()
    assert finished.exit_code == 0
    assert "rank 1 was killed by SIGKILL; the other 2 went on and finished" in finished.stderr
    assert flushed(tmp_path) == [0, 2]
    assert_nothing_is_left(finished)


@pytest.mark.parametrize("receiver", ["worker", "launcher"])
def test_a_lone_worker_unwinds_when_it_is_terminated(tmp_path, receiver):
    started, pids = waiting(tmp_path, workers=1)
    os.kill(pids[0] if receiver == "worker" else started.launcher.pid, signal.SIGTERM)
    finished = started.finish(10)
    assert flushed(tmp_path) == [0]
    if receiver == "worker":
        assert finished.exit_code == 3
        assert "rank 0 was killed by SIGTERM" in finished.stderr
    assert_nothing_is_left(finished)


def test_what_does_not_stop_after_a_failure_is_ended(tmp_path):
    failing = "if rank == '1': raise ValueError('no such column')"
    script = WAITING.replace("{more}", failing)
    finished = run_script(script, [str(tmp_path)], workers=3)
    assert finished.exit_code == 1
    assert "[1] ValueError: no such column" in finished.stderr
    assert "rank 1 failed with exit code 1; the other 2 were stopped" in finished.stderr
    assert finished.wall_s > 10
    assert_nothing_is_left(finished)


STUBBORN = """
import signal, subprocess
if rank == "1":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "100"])
"""


@pytest.mark.timed
@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_ends_every_process_within_2_seconds(tmp_path, number, exit_code):
    started, pids = waiting(tmp_path, more=STUBBORN)
    os.kill(pids[2], signal.SIGSTOP)
    struck_s = time.monotonic()
    started.launcher.send_signal(number)
    finished = started.finish(10)
    assert time.monotonic() - struck_s < 2.0
    assert finished.exit_code == exit_code
    assert "what was recorded is kept" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.summary["exit_code"] == exit_code
    assert_nothing_is_left(finished, within_s=0.1)


LOADING = """
if __name__ == "__main__" and rank == "1":
    import torch
    loader = iter(torch.utils.data.DataLoader(list(range(1000)), num_workers=2))
    next(loader)
"""


def test_nothing_outlives_a_launcher_that_was_killed(tmp_path):
    started, _ = waiting(tmp_path, more=LOADING)
    assert len(processes_of(started.mark)) >= 7
    started.launcher.kill()
    finished = started.finish(10)
    assert_nothing_is_left(finished, within_s=6.0)
    assert finished.summary["ended"] is None


def test_loader_processes_of_a_killed_worker_end_with_it(tmp_path):
    started, pids = waiting(tmp_path, more=LOADING, workers=2)
    before = {process.pid for process in processes_of(started.mark)}
    os.kill(pids[1], signal.SIGKILL)
    by_s = time.monotonic() + 2.0
    while len(processes_of(started.mark)) > len(before) - 3 and time.monotonic() < by_s:
        time.sleep(0.02)
    assert len(processes_of(started.mark)) == len(before) - 3
    (tmp_path / "go").touch()
    finished = started.finish()
    assert finished.exit_code == 0
    assert_nothing_is_left(finished)


def test_the_summary_alone_is_printed_as_json():
    finished = run_script("print('hello')", workers=1, json=True)
    assert json.loads(finished.stdout) == finished.summary
    assert "[0] hello" in finished.stderr


def test_a_quiet_run_says_only_what_its_script_says():
    finished = run_script("print('hello')", workers=1, quiet=True)
    assert (finished.stdout, finished.stderr) == ("[0] hello\n", "")


def test_a_run_can_be_made_from_any_thread_of_a_program(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print('hello')")
    request = RunRequest(script=script, out=tmp_path / "out", workers=1)
    streams = io.StringIO(), io.StringIO()
    results = []
    thread = threading.Thread(
        target=lambda: results.append(run(request, stdout=streams[0], stderr=streams[1]))
    )
    thread.start()
    thread.join()
    assert results[0].exit_code == 0
    assert results[0].out == tmp_path / "out"
    assert streams[0].getvalue() == "[0] hello\n"
    assert not [thread for thread in threading.enumerate() if "paceline" in thread.name]
