"""The launcher with real Workers: interruption keeps what was recorded, torchrun does as well."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.runs import read_run
from support.leaks import assert_nothing_is_left
from support.runs import RunningRun, wait_for

SCRIPT = Path(__file__).parent / "training_script.py"
LONG = ["--epochs", "1000", "--step-s", "0.02"]
FULL_ALLREDUCE = pytest.param("sync:allreduce", marks=pytest.mark.full)


@pytest.mark.parametrize("strategy", ["async", FULL_ALLREDUCE])
def test_ctrl_c_ends_a_training_within_2_seconds_and_keeps_its_record(tmp_path, strategy):
    started = RunningRun(SCRIPT, [str(tmp_path), *LONG], workers=2, strategy=strategy)
    for rank in range(2):
        wait_for(tmp_path / f"training-{rank}")
    struck_s = time.monotonic()
    started.launcher.send_signal(signal.SIGINT)
    finished = started.finish(10)
    assert time.monotonic() - struck_s < 2.0
    assert finished.exit_code == 130
    assert "Traceback" not in finished.stderr
    assert_nothing_is_left(finished, within_s=0.1)
    for rank in read_run(finished.out).ranks:
        assert rank.steps[-1].time_s > struck_s - 0.5, "up to the last step"


@pytest.mark.parametrize("strategy", ["async", FULL_ALLREDUCE])
def test_a_training_ends_with_a_launcher_that_was_killed(tmp_path, strategy):
    started = RunningRun(SCRIPT, [str(tmp_path), *LONG], workers=2, strategy=strategy)
    for rank in range(2):
        wait_for(tmp_path / f"training-{rank}")
    started.launcher.kill()
    assert_nothing_is_left(started.finish(10), within_s=6.0)


@pytest.mark.full
def test_one_workers_sigterm_is_not_the_others_end(tmp_path):
    started = RunningRun(
        SCRIPT, [str(tmp_path), "--epochs", "20", "--step-s", "0.02"], workers=3, strategy="async"
    )
    pids = [int(wait_for(tmp_path / f"training-{rank}")) for rank in range(3)]
    os.kill(pids[1], signal.SIGTERM)
    finished = started.finish()
    assert finished.exit_code == 0, finished.stderr
    assert "rank 1 was killed by SIGTERM" in finished.stderr
    assert "the other 2 went on and finished" in finished.stderr


@pytest.mark.full
def test_a_lost_worker_is_named_with_its_clock(tmp_path):
    started = RunningRun(
        SCRIPT, [str(tmp_path), "--epochs", "10", "--step-s", "0.02"], workers=3, strategy="async"
    )
    pids = [int(wait_for(tmp_path / f"training-{rank}")) for rank in range(3)]
    os.kill(pids[1], signal.SIGKILL)
    finished = started.finish()
    assert finished.exit_code == 0, finished.stderr
    clock = finished.summary["ranks"][1]["clock"]
    assert clock >= 1
    assert f"rank 1 was killed by SIGKILL at clock {clock}; the other 2 went on" in finished.stderr


def test_the_same_script_runs_under_torchrun(tmp_path):
    torchrun = str(Path(sys.executable).parent / "torchrun")
    done = subprocess.run(
        [torchrun, "--standalone", "--nproc-per-node=2", str(SCRIPT), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    # Both ranks write to one pipe: where Python is unbuffered, a newline is a write of its own.
    said = re.findall(r"(rank \d of 2): weight (-?\d+\.\d{6})", done.stdout)
    assert sorted(who for who, _ in said) == ["rank 0 of 2", "rank 1 of 2"]
    assert len({weight for _, weight in said}) == 1
