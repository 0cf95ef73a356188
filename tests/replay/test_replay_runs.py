"""``paceline replay`` on real processes: record a run, replay it, compare all there is."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline import events, trace
from paceline.encounters import Differs
from paceline.runs import read_records, read_run
from support.leaks import assert_nothing_is_left
from support.runs import RunningRun, run_script, wait_for

SCRIPT = Path(__file__).parent / "script.py"
pytestmark = pytest.mark.timeout(240)
WITHOUT_TORCH = """
import sys
sys.argv = ["paceline", "replay", *{args!r}]
from paceline.cli import main
try:
    main()
finally:
    assert "torch" not in sys.modules, "the command itself needs no torch"
"""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """``said``: the JSON that it printed."""

    exit_code: int
    said: dict[str, Any]
    stderr: str

    @property
    def out(self) -> Path:
        return Path(self.said["out"])


def replay(run: Path, *args: str) -> Replay:
    statement = WITHOUT_TORCH.format(args=[str(run), "--json", *args])
    before = contents(run)
    done = subprocess.run(
        [sys.executable, "-c", statement], capture_output=True, text=True, timeout=200
    )
    assert contents(run) == before, "nothing is written into the run"
    assert "the command itself" not in done.stderr
    said = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return Replay(exit_code=done.returncode, said=said, stderr=done.stderr)


def contents(run: Path) -> dict[str, str]:
    files = sorted(path for path in run.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def record(*args: str, strategy: str, workers: int = 4, **options: Any) -> Path:
    """A run with everything in it, as far as ``args`` do not say otherwise."""
    done = run_script(SCRIPT, args, strategy=strategy, workers=workers, accumulate=2, **options)
    assert done.exit_code == 0, done.stderr[-3000:]
    return done.out


def digests(run: Path) -> list[str]:
    """Of the parameters at the end, of all workers that came there."""
    closes = [rank.close for rank in read_run(run).ranks]
    return [close.digest for close in closes if close and close.reason == "finished"]


def served(run: Path) -> list[Any]:
    """Facts, orders and encounters with their times."""
    records = read_records(run / "server.jsonl")
    return [one for one in records if not isinstance(one, trace.Header | trace.Note)]


def assert_equal(run: Path, again: Replay) -> None:
    assert again.exit_code == 0, again.stderr[-3000:]
    assert again.said["equal"]
    assert "bit for bit" in again.said["sentence"]
    assert digests(again.out) == digests(run)
    assert again.said["digest"] in digests(run)
    assert list(map(untimed, served(again.out))) == list(map(untimed, served(run)))
    for then, now in zip(read_run(run).ranks, read_run(again.out).ranks, strict=True):
        whole = then.close is not None  # of a killed worker the last second is lost, in either run
        for mine, its in ((steps(then), steps(now)), (metrics(then), metrics(now))):
            both = max(len(mine), len(its)) if whole else min(len(mine), len(its))
            assert its[:both] == mine[:both]


def steps(rank: Any) -> list[tuple[Any, ...]]:
    return [(step.clock, step.version, step.loss, step.norm) for step in rank.steps]


def metrics(rank: Any) -> list[tuple[str, float]]:
    return [(metric.name, metric.value) for metric in rank.metrics]


def untimed(one: Any) -> tuple[Any, ...]:
    fields = [name for name in one.__slots__ if name != "time_s"]
    return (type(one), *(getattr(one, name) for name in fields))


def test_an_asynchronous_run_with_a_death_is_replayed_bit_for_bit() -> None:
    """One cheap cell of what the others do at full length."""
    run = record("--epochs", "1", "--batches", "28", "--kill", "1", strategy="async", workers=2)
    assert any(isinstance(one, events.Drop) for one in read_run(run).decisions)
    assert any(isinstance(one, events.Release) and one.returned for one in served(run))
    assert_equal(run, replay(run))


@pytest.mark.full
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("strategy", ["async", "ssp:3"])
def test_20_of_20(strategy: str, number: int) -> None:
    """Four workers, accumulation, skipped windows, batches on demand; every other with a kill -9."""
    death = ["--kill", str(number % 4)] if number % 2 else []
    extra = ["--loader-workers", "1"] if number % 5 == 4 else []
    run = record(*death, *extra, "--save-every", "5", strategy=strategy, seed=number)
    decisions = read_run(run).decisions
    assert any(isinstance(one, events.Drop) and one.kind == "non-finite" for one in decisions)
    assert (
        sum(isinstance(one, events.Leave) and one.reason == "dead" for one in decisions)
        == len(death) / 2
    )
    assert_equal(run, replay(run))


@pytest.mark.full
@pytest.mark.parametrize(
    ("strategy", "workers", "args"),
    [
        ("sync:server", 3, ["--save-every", "5"]),
        ("ssp:0", 2, []),
        ("backup:1", 3, ["--kill", "2"]),
        ("async", 2, ["--workers-made", "3", "--epochs", "1"]),
        ("sync:allreduce", 2, ["--save-every", "5"]),
        ("sync", 1, []),
    ],
)
def test_every_strategy_is_replayed(strategy: str, workers: int, args: list[str]) -> None:
    run = record(*args, strategy=strategy, workers=workers)
    again = replay(run)
    assert again.exit_code == 0, again.stderr[-3000:]
    assert "bit for bit" in again.said["sentence"]
    assert digests(again.out) == digests(run)


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["async", "sync:server", "sync:allreduce"])
def test_a_perturbed_input_is_caught_at_its_first_fact(tmp_path: Path, strategy: str) -> None:
    switch = tmp_path / "perturb"
    run = record("--perturb-if", str(switch), "--no-bad", strategy=strategy, workers=2)
    switch.write_text("1")
    again = replay(run)
    assert again.exit_code == 1
    differs = again.said["differs"]
    # Batch 3 of the rank's first pass lies in its second window, of clock 1.
    assert (differs["rank"], differs["clock"]) == (1, 1), differs
    of = "loss of its step" if strategy == "sync:allreduce" else "gradient_norm of its push"
    assert differs["field"] == of
    line = (run / differs["file"]).read_text().splitlines()[differs["line"] - 1]
    assert differs["recorded"] in line
    assert str(Differs(**differs)) in again.said["sentence"]


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["ssp:3", "sync:server", "sync:allreduce"])
def test_stopping_inside_leaves_a_checkpoint_and_who_stood_where(strategy: str) -> None:
    import torch
    from safetensors.torch import load_file

    run = record(strategy=strategy, workers=2)
    again = replay(run, "--until", "6")
    assert again.exit_code == 0, again.stderr[-3000:]
    assert again.said["updates"] == 6
    assert [one["rank"] for one in again.said["standings"]] == [0, 1]
    model = load_file(Path(again.said["checkpoint"]) / "model.safetensors")
    assert set(model) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    # Going on from it, alone in the order of things, is a run like any other.
    more = replay(run, "--until", "6", "--out", str(again.out.with_name("twice")))
    twice = load_file(Path(more.said["checkpoint"]) / "model.safetensors")
    assert all(torch.equal(twice[name], model[name]) for name in model)
    resumed = run_script(SCRIPT, ["--epochs", "2"], resume=again.out)
    assert resumed.exit_code == 0, resumed.stderr[-3000:]


@pytest.mark.full
def test_a_run_whose_launcher_was_killed_is_replayed_as_far_as_its_record_goes(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "trained"
    script = SCRIPT.read_text().replace(
        "            worker.step(",
        f"            Path({str(mark)!r}).write_text('x') if step == 20 else None\n"
        "            worker.step(",
    )
    started = RunningRun(script, ["--epochs", "50"], workers=2, strategy="async", accumulate=2)
    wait_for(mark)
    started.launcher.kill()
    cut = started.finish(30)
    assert_nothing_is_left(cut, within_s=10.0)
    run = cut.out
    again = replay(run)
    assert again.exit_code == 0, again.stderr[-3000:]
    assert "where its record breaks off" in again.said["sentence"]
    assert again.said["updates"] == sum(isinstance(one, events.Update) for one in served(run))
    assert again.said["checkpoint"]


@pytest.mark.full
def test_a_failure_and_a_resumed_run_are_replayed() -> None:
    failed = run_script(SCRIPT, ["--fail", "1"], strategy="async", workers=3)
    assert failed.exit_code == 1
    again = replay(failed.out)
    assert again.exit_code == 0, again.stderr[-3000:]
    assert "as recorded: rank 1 failed" in again.said["sentence"]
    saved = record("--save-every", "5", "--epochs", "1", strategy="ssp:3", workers=2)
    resumed = run_script(SCRIPT, ["--epochs", "2"], resume=saved)
    assert_equal(resumed.out, replay(resumed.out))


@pytest.mark.full
def test_a_virtual_run_is_replayed_on_real_processes(tmp_path: Path) -> None:
    """Two drivers of one policy: what one simulates the other repeats, bit for bit."""
    cluster = tmp_path / "cluster.toml"
    cluster.write_text("[workers]\ncount = 3\nstep_s = 0.03\njitter = 0.5\n")
    run = record(strategy="async", workers=3, virtual=cluster)
    assert_equal(run, replay(run))
