"""Killed at random moments and resumed: nothing is lost but what came after the last checkpoint.

``paceline run --resume`` is the only thing that is said about the checkpoint. One chain of runs is
killed, resumed, killed again, until it ends; under strategies whose updates are of all workers its end
has the bits of a run that was never interrupted, and elsewhere the traces say that every batch of every
pass is in exactly one update that survived.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from paceline import checkpoints, events
from paceline.events import Left
from paceline.runs import read_records, read_run
from support.leaks import assert_nothing_is_left
from support.runs import FinishedRun, RunningRun, run_script

HERE = Path(__file__).parent
SCRIPT = HERE / "resumable.py"
BATCHES, EPOCHS = 120, 2
KILLS = 20


def arguments(marks: Path) -> list[str]:
    marks.mkdir(exist_ok=True)
    return [str(marks), "--batches", str(BATCHES), "--epochs", str(EPOCHS), "--step-s", "0.03"]


def ends(marks: Path) -> list[str]:
    return [path.read_text() for path in sorted(marks.glob("end-*"))]


def is_training(run: RunningRun) -> bool:
    path = run.out / "rank-0.jsonl"
    return path.exists() and b'\n["setup"' in path.read_bytes()


def strike(run: RunningRun, stream: random.Random, methods: list[str]) -> str:
    """Kill the run at a random moment of its training; how, or "" if it had ended."""
    by_s = time.monotonic() + 60
    while not is_training(run) and run.launcher.poll() is None and time.monotonic() < by_s:
        time.sleep(0.02)
    time.sleep(stream.uniform(0, 1.5))
    if run.launcher.poll() is not None:
        return ""
    launcher = psutil.Process(run.launcher.pid)
    family = launcher.children(recursive=True)
    how = stream.choice(methods)
    if how == "interrupt":
        launcher.send_signal(signal.SIGINT)
    elif how == "launcher":
        launcher.kill()
    elif how == "worker":
        workers = [one for one in family if "paceline.launch.bootstrap" in one.cmdline()]
        stream.choice(workers).kill() if workers else launcher.kill()
    else:
        for process in [launcher, *family]:
            process.suspend()  # nobody shall notice anything
        for process in [launcher, *family]:
            process.kill()
    return how


def chains(
    strategy: str, tmp_path: Path, kills: int, methods: list[str]
) -> Iterator[tuple[list[Path], Path]]:
    """Chains of runs until ``kills`` are done: the directories of each, and its end's marks."""
    stream = random.Random(strategy)
    done: Counter[str] = Counter()
    number = 0
    while done.total() < kills:
        number += 1
        marks = tmp_path / f"chain-{number}"
        runs = [RunningRun(SCRIPT, arguments(marks), workers=2, strategy=strategy)]
        while True:
            how = strike(runs[-1], stream, methods) if done.total() < kills else ""
            finished = runs[-1].finish()
            if not how and finished.exit_code == 0:
                break
            done[how] += 1
            if finished.exit_code == 0:  # a worker was killed that had left already
                break
            runs.append(_again(runs[-1], marks, strategy))
        assert_nothing_is_left(finished)
        yield [run.out for run in runs], marks
    print(strategy, dict(done), f"{number} chains")


def _again(run: RunningRun, marks: Path, strategy: str) -> RunningRun:
    try:
        checkpoints.newest(run.out)
    except ValueError:  # it was killed before the first one
        return RunningRun(SCRIPT, arguments(marks), workers=2, strategy=strategy)
    return RunningRun(SCRIPT, arguments(marks), resume=str(run.out), threads=None)


@pytest.mark.full
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("strategy", ["sync:server", "sync:allreduce", "ssp:0"])
def test_killed_and_resumed_20_times_a_joint_run_ends_with_the_same_bits(
    tmp_path: Path, strategy: str
) -> None:
    whole = tmp_path / "whole"
    run = run_script(SCRIPT, arguments(whole), workers=2, strategy=strategy)
    assert run.exit_code == 0, run.stderr[-2000:]
    methods = ["all", "all", "launcher", "worker", "interrupt"]
    for _, marks in chains(strategy, tmp_path, KILLS, methods):
        assert set(ends(marks)) == set(ends(whole))


@pytest.mark.full
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("strategy", ["ssp:3", "async"])
def test_killed_and_resumed_20_times_every_batch_survives_in_one_update(
    tmp_path: Path, strategy: str
) -> None:
    methods = ["all", "all", "launcher", "interrupt"]  # the others outlive a worker
    for outs, marks in chains(strategy, tmp_path, KILLS, methods):
        assert len(ends(marks)) == 2
        lived = Counter(survivors(outs))
        expected = [(p, batch) for p in range(EPOCHS) for batch in range(BATCHES)]
        assert lived == Counter(expected)


def survivors(outs: list[Path]) -> Iterator[tuple[int, int]]:
    """(pass, batch) of every update that is in the parameters in which a chain of runs ended."""
    out, until = outs[-1], None
    while True:
        resumed = json.loads((out / "run.json").read_text())["request"]["resume"]
        body = checkpoints.read_body(Path(resumed)) if resumed else None
        yield from applied(out, body, until)
        if body is None or resumed is None:
            return
        out, until = Path(resumed).parents[1], body["version"]


def applied(out: Path, body: dict[str, Any] | None, until: int | None) -> Iterator[tuple[int, int]]:
    """What the updates of one run hold, up to its cut at version ``until``.

    ``body``: of the checkpoint that it went on from.
    """
    version = 0 if body is None else body["version"]
    running: dict[int, tuple[int, tuple[int, ...]]] = {}
    passes: dict[int, int] = {}
    for record in read_records(out / "server.jsonl"):
        if isinstance(record, events.Cut) and record.version == until:
            assert version == until, "no later update is inside, no earlier one is missing"
            return
        if isinstance(record, events.Request):
            passes[record.rank] = record.pass_id
        elif isinstance(record, events.Start):
            running[record.rank] = passes[record.rank], record.batches
        elif isinstance(record, events.Update):
            version += 1
            for rank in record.ranks:
                pass_id, batches = running.pop(rank)
                yield from ((pass_id, real(body, pass_id, batch)) for batch in batches)
    assert until is None, f"no cut at version {until} in {out}"


def real(body: dict[str, Any] | None, pass_id: int, batch: int) -> int:
    if body is None or not body["inside"] or pass_id != body["passes"]:
        return batch
    (left,) = (Left(**{**one, "returned": tuple(one["returned"])}) for one in body["left"])
    return left.number(batch)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_kill_9_while_saving_50_times_always_leaves_a_loadable_checkpoint(tmp_path: Path) -> None:
    script = HERE / "killed_while_saving.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "50"],
        capture_output=True,
        text=True,
        check=True,
    )
    print(done.stdout)
    assert "50 kills" in done.stdout
    assert ", 0 in the midst" not in done.stdout


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_disk_that_is_really_full_leaves_the_old_one_and_training_goes_on(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False
    )
    if mounted.returncode:
        pytest.skip("mount is not allowed here")
    try:
        run = run_script(FULL_DISK, [str(disk)], workers=2, strategy="async")
        assert run.exit_code == 0, run.stderr[-2000:]
        assert checkpoints.read_body(checkpoints.newest(disk))["version"] == 0
        assert any("the disk is full" in line for rank in (0, 1) for line in run.lines(rank))
        assert all("went on" in run.lines(rank)[-1] for rank in (0, 1))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


FULL_DISK = """
import os, sys, torch, paceline
model = torch.nn.Linear(200, 200)
worker = paceline.Worker(model, torch.optim.Adam(model.parameters()))
worker.save(sys.argv[1])
if worker.rank == 0:
    with open(sys.argv[1] + "/filler", "wb") as file:
        file.write(bytes(2**19))
worker.stop(False)
for inputs in worker.batches([torch.ones(2, 200)] * 8):
    worker.step(worker(inputs).square().mean())
    try:
        worker.save(sys.argv[1])
    except paceline.CheckpointError as error:
        print(error)
try:
    worker.save(sys.argv[1])
except paceline.CheckpointError as error:
    print(error)
print("went on to version", worker.version > 0)
worker.close()
"""


def test_the_command_line_resumes_an_interrupted_run(tmp_path: Path) -> None:
    """The quick one: one worker, killed in its second pass, resumed by one word."""
    few = ["--batches", "6", "--every", "2", "--step-s", "0"]
    killed = _run([str(tmp_path), *few, "--die-at", "8"], seed=4)
    assert killed.exit_code != 0
    assert len(checkpoints.found(killed.out / "checkpoints")) == 3
    again = _run([str(tmp_path), *few], resume=str(killed.out))
    assert again.exit_code == 0, again.stderr
    assert "going on from version 8" in again.stderr
    assert "seed 4" in again.stderr
    assert ends(tmp_path)[0].split()[1:3] == ["12", "48"], "version and samples of the whole run"
    assert [note.kind for note in read_run(again.out).notes][:2] == ["resumed", "saved"]


def _run(args: list[str], **options: Any) -> FinishedRun:
    return run_script(SCRIPT, args, **options)
