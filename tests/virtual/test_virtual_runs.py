"""Virtual time, through the command line: the script unmodified, its bits those of a real run."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest

from paceline import events
from paceline.compare.figures import figures_of
from paceline.runs import read_run
from support.leaks import assert_nothing_is_left
from support.runs import FinishedRun, RunningRun, run_script, wait_for

HERE = Path(__file__).parent
SCRIPT = HERE / "script.py"
CLUSTER = HERE.parent / "equality" / "cluster.toml"

TINY = """
import sys, torch, paceline
model = torch.nn.Linear(2, 1)
worker = paceline.Worker(model, torch.optim.SGD(model.parameters(), lr=0.1))
for number, (x,) in enumerate(worker.batches([(torch.ones(2, 2),)] * 12)):
    {inside}
    worker.step(worker(x).sum())
{after}
"""


def what_came(run: FinishedRun) -> list[object]:
    """Digests, metrics, random draws at the end, and the whole order of decisions."""
    assert run.exit_code == 0, run.stderr
    record = read_run(run.out)
    drawn = sorted(line for line in run.stdout.splitlines() if "drew" in line)
    digests = [rank.close.digest for rank in record.ranks if rank.close is not None]
    return [digests, [metric.value for metric in record.metrics], drawn, record.decisions]


def test_a_run_in_virtual_time_repeats_itself_bit_for_bit() -> None:
    """Three workers that overtake each other, two processes of each one's loader."""
    runs = [
        run_script(SCRIPT, ["2"], workers=3, virtual=CLUSTER, strategy="async") for _ in range(2)
    ]
    first, second = map(what_came, runs)
    assert first == second
    assert len(set(first[2])) == 3  # each worker draws from a stream of its own
    overtakings = np.diff([o.rank for o in first[3] if isinstance(o, events.Start)])
    assert len(set(overtakings)) > 2
    assert_nothing_is_left(runs[0])


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["ssp:2", "backup:1", "sync:allreduce", "ssp:0"])
def test_every_strategy_repeats_itself(strategy: str) -> None:
    options = {"workers": 3, "virtual": CLUSTER, "strategy": strategy}
    first, second = (what_came(run_script(SCRIPT, ["0"], **options)) for _ in range(2))
    assert first == second


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["sync:server", "ssp:0"])
@pytest.mark.parametrize("workers", [1, 3])
def test_virtual_sync_has_the_bits_of_the_real_run(strategy: str, workers: int) -> None:
    """Dropout, batch norm, loader processes and the script's own draws included."""
    virtual = run_script(SCRIPT, ["2"], workers=workers, virtual=CLUSTER, strategy=strategy)
    real = run_script(SCRIPT, ["2"], workers=workers, strategy=strategy)
    assert what_came(virtual)[:3] == what_came(real)[:3]


def test_time_is_the_clusters_and_not_the_machines() -> None:
    cluster = HERE / "slow.toml"
    run = run_script(TINY.format(inside="", after=""), workers=2, virtual=cluster)
    assert run.exit_code == 0, run.stderr
    figures = figures_of(read_run(run.out))
    # Six rounds: rank 1 is four times as slow as the second that a step takes.
    assert figures.wall_s == pytest.approx(24.0)
    assert figures.wait_share == pytest.approx(3 / 8, abs=0.01)
    assert run.summary["virtual_s"] == pytest.approx(24.0)
    assert "24.0 s of the cluster's time" in run.stderr
    assert run.wall_s < 24.0


@pytest.mark.parametrize(
    ("inside", "after", "code", "said"),
    [
        (
            "if worker.rank == 1 and number == 2: raise RuntimeError('disk full')",
            "",
            1,
            "disk full",
        ),
        ("", "if worker.rank == 1: sys.exit('no more')", 1, "no more"),
    ],
)
def test_a_script_that_fails_on_one_rank_stops_the_others(
    inside: str, after: str, code: int, said: str
) -> None:
    script = TINY.format(inside=inside, after=after)
    run = run_script(script, workers=3, virtual=CLUSTER, strategy="async")
    assert run.exit_code == code, run.stderr
    assert f"[1] {said}" in run.stderr or f"[1] RuntimeError: {said}" in run.stderr
    assert "rank 1 failed with exit code 1" in run.stderr


OWN = """
import atexit, contextlib, io
log = open(f"{folder}/log-{os.environ['RANK']}", "w")
atexit.register(lambda: open(f"{folder}/left-{os.environ['RANK']}", "w").close())
sys.stdout.reconfigure(line_buffering=True)
sys.stdout.buffer.write(sys.argv.pop(1).encode() + b" came\\n")
"""


def test_output_files_arguments_and_the_end_are_each_workers_own(tmp_path: Path) -> None:
    inside = "log.write('x'); held = contextlib.redirect_stdout(io.StringIO()); held.__enter__()"
    after = "held.__exit__(None, None, None); print('shown')"
    loop = (
        TINY.format(inside=inside, after="").rstrip().replace("\n    worker.step", "\n    WORKER")
    )
    loop = loop.replace("WORKER(worker(x).sum())", f"worker.step(worker(x).sum()); {after}")
    head = "import os, sys\n" + OWN.replace("{folder}", str(tmp_path))
    run = run_script(head + loop, ["argument"], workers=2, virtual=CLUSTER, strategy="async")
    assert run.exit_code == 0, run.stderr
    windows = [run.lines(rank).count("shown") for rank in range(2)]
    assert sum(windows) == 12
    assert all("argument came" in run.lines(rank) for rank in range(2))
    assert [len((tmp_path / f"log-{rank}").read_text()) for rank in range(2)] == windows
    assert list(tmp_path.glob("left-*"))


@pytest.mark.full
def test_training_in_a_module_that_is_being_imported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(TINY.format(inside="", after=""))
    script = tmp_path / "script.py"
    script.write_text("import module\n")
    run = run_script(script, workers=2, virtual=CLUSTER)
    assert run.exit_code == 1
    assert "wants to import a module that another worker is in the midst of importing" in run.stderr


def test_a_rank_that_never_makes_its_worker_is_named() -> None:
    script = "import os\nif os.environ['RANK'] == '1': raise SystemExit\n" + TINY.format(
        inside="", after=""
    )
    run = run_script(script, workers=2, virtual=CLUSTER)
    assert run.exit_code == 3, run.stderr
    assert "rank 1 ended before it made its paceline.Worker" in run.stderr


def test_ctrl_c_keeps_what_was_recorded(tmp_path: Path) -> None:
    mark = f"if number == 3: open({str(tmp_path / 'three')!r}, 'w').close()"
    script = TINY.replace("* 12", "* 1000000").format(inside=mark, after="")
    started = RunningRun(script, [], workers=2, virtual=CLUSTER)
    wait_for(tmp_path / "three")
    started.launcher.send_signal(signal.SIGINT)
    began_s = time.monotonic()
    run = started.finish(20.0)
    assert run.exit_code == 130
    assert time.monotonic() - began_s < 10
    assert "what was recorded is kept" in run.stderr
    assert read_run(run.out).ranks[0].steps
    assert_nothing_is_left(run)


def lag_shares(run: FinishedRun) -> np.ndarray:
    """The share of applied pushes with version lag at most 0, 1, 2, ..., 63."""
    assert run.exit_code == 0, run.stderr
    lags = [step.lag for rank in read_run(run.out).ranks for step in rank.steps if step.applied]
    assert len(lags) >= 2000
    return np.cumsum(np.bincount(lags, minlength=64)[:64]) / len(lags)


@pytest.mark.full
@pytest.mark.timed
@pytest.mark.parametrize("strategy", ["async", "ssp:3"])
def test_version_lags_are_distributed_as_in_an_emulated_run(strategy: str) -> None:
    script = TINY.replace("* 12", "* 2400").format(inside="", after="")
    emulated = run_script(script, workers=4, emulate=HERE / "lags.toml", strategy=strategy)
    virtual = run_script(script, workers=4, virtual=HERE / "lags.toml", strategy=strategy)
    gap = np.abs(lag_shares(virtual) - lag_shares(emulated)).max()
    assert gap <= 0.05, f"{gap:.3f}"


def test_emulate_and_virtual_exclude_each_other() -> None:
    run = run_script(TINY.format(inside="", after=""), workers=2, virtual=CLUSTER, emulate=CLUSTER)
    assert run.exit_code == 2
    assert "--emulate and --virtual cannot work together" in run.stderr
