"""``paceline measure`` and ``doctor`` as commands: what is refused, and (full) what a real group gives."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from paceline.cli import paceline
from paceline.errors import UsageError
from paceline.launch.local_group import said_by_group
from paceline.simulate.cluster import ClusterModel
from synthetic_runs import Ring, simulated_run

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(400)
CHEAP = ["--algorithms", "none"]


def invoke(*words, environment=None):
    clean = {"RANK": None, "WORLD_SIZE": None, **(environment or {})}
    return CliRunner().invoke(paceline, ["measure", *words], env=clean)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "No group: give -n 4"),
        (["-n", "4", "--algorithms", "ring,star"], "algorithms='star'"),
        (["-n", "5", "--per-node", "2"], "5 ranks do not fill nodes of 2"),
        (["-n", "4", "--picture", "links.png"], "ends in .svg or .html"),
        (["-n", "4", "--out", "nowhere/at/all/cluster.toml"], "a file in a directory that exists"),
        (["-n", "4", "missing.py"], "script='missing.py'"),
        (["-n", "4", "--from", "runs/x", "missing.py"], "without --from"),
    ],
)
def test_refused_before_anything_starts(words, message):
    done = invoke(*words)
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)


def test_a_run_of_more_workers_than_are_measured_is_refused_before_anything_starts(tmp_path):
    """Else the cluster.toml would name a straggler that is not in it, and nobody could read it."""
    recorded = str(simulated_run(tmp_path / "run", Ring(workers=4)))
    done = invoke("-n", "2", "--from", recorded)
    assert isinstance(done.exception, UsageError)
    assert f"expected 4, as many as {recorded} has recorded" in str(done.exception)
    missing = invoke("-n", "2", "--from", str(tmp_path / "none"))
    assert "no run here" in str(missing.exception)


def run(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "paceline.cli", *words], capture_output=True, text=True, timeout=300,
        check=False, **options,
    )  # fmt: skip


@pytest.mark.full
def test_a_group_here_with_a_scripts_steps(tmp_path):
    out = tmp_path / "cluster.toml"
    script = str(ROOT / "examples" / "digits_cnn.py")
    done = run("measure", "-n", "2", "--json", "--out", str(out), "--picture",
               str(tmp_path / "links.html"), "--algorithms", "gloo,ring", script)  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    document = json.loads(done.stdout)
    assert [one["interface"] for one in document["places"]] == ["lo", "lo"]
    assert len(document["links"]) == 2
    assert {one["algorithm"] for one in document["all_reduce"]} == {"gloo", "ring"}
    assert document["steps"]["recorded"] >= 60
    model = ClusterModel.load(out)
    assert model.count == 2
    assert 0.001 < model.regular_s < 5
    assert "<svg" in (tmp_path / "links.html").read_text()
    simulated = run("simulate", str(out), "--strategies", "sync,async", "--steps", "20")
    assert simulated.returncode == 0, simulated.stderr


@pytest.mark.full
def test_under_torchrun(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port",
         "29583", "-m", "paceline.cli", "measure", *CHEAP, "--out", str(tmp_path / "c.toml")],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "bandwidth, row sends to column" in done.stdout
    assert ClusterModel.load(tmp_path / "c.toml").count == 2


@pytest.mark.full
def test_ctrl_c_keeps_what_there_is_and_ends_the_group(tmp_path):
    out = tmp_path / "cluster.toml"
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline.cli", "measure", "-n", "2", "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(15)
    members = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    if process.returncode == 130 and said:
        assert "interrupted" in said
        assert ClusterModel.load(out).count == 2
    assert process.returncode in (0, 1, 3, 130)
    assert members
    assert not any(member.is_running() and member.status() != "zombie" for member in members)


@pytest.mark.full
def test_a_member_that_fails_is_told_with_its_words():
    from paceline.errors import PacelineError

    with pytest.raises(PacelineError, match="nonsense"):
        list(said_by_group("paceline.launch.group_member", 2, {"nonsense": 1}))


@pytest.mark.full
def test_the_doctor(tmp_path):
    began_s = time.monotonic()
    done = run("doctor", "--json")
    assert time.monotonic() - began_s < 60
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert document["facts"]["speeds"]["compute_alone"] > 1e8
    quick = run("doctor", "--quick", "--hosts", "2")
    assert "not measured: --quick" in quick.stdout
    assert quick.returncode == int(not quick.stdout.startswith("Nothing"))
