"""`paceline compare` on real processes: from the command line to the table and the report."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from support.runs import heed_ctrl_c

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset
import paceline

model = torch.nn.Linear(4, 2)
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 2, (24,)))
worker = paceline.Worker(model, torch.optim.SGD(model.parameters(), lr=0.1))
endless = worker.world_size > 1 and "endless" in sys.argv
steps = 10**6 if endless else None
for inputs, targets in worker.batches(DataLoader(data, batch_size=4), steps=steps):
    worker.step(torch.nn.functional.cross_entropy(worker(inputs), targets))
worker.log(quality=worker.mean(float(worker.rank)))
print("printed by the script")
worker.close()
"""


@pytest.fixture
def compare(tmp_path):
    """Starts `paceline compare` and makes sure that it is gone afterwards."""
    started = []

    def start(*arguments):
        (tmp_path / "train.py").write_text(SCRIPT)
        command = [sys.executable, "-m", "paceline.cli", "compare", "--out", str(tmp_path / "out")]
        process = subprocess.Popen(
            [*command, *arguments], cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, preexec_fn=heed_ctrl_c,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_every_strategy_becomes_a_row_with_real_figures(compare, tmp_path):
    process = compare("-n", "2", "--strategies", "sync,ssp:1", "--json", "train.py")
    stdout, stderr = process.communicate(timeout=110)
    assert process.returncode == 0, stderr
    figures = json.loads(stdout)
    one, *others = [row["runs"][0] for row in figures["rows"]]
    assert [row["label"] for row in figures["rows"]] == ["1 worker", "sync", "ssp:1"]
    assert [run["samples"] for run in (one, *others)] == [24.0, 24.0, 24.0]
    assert (one["updates"], others[0]["updates"], others[1]["updates"]) == (6, 3, 6)
    assert (one["effective_batch"], others[0]["effective_batch"]) == (4.0, 8.0)
    assert [run["metrics"]["quality"] for run in (one, *others)] == [0.0, 0.5, 0.5]
    assert others[1]["lead_max"] <= 1
    assert one["digest"] == others[0]["digest"] == others[1]["digest"]
    for run in (one, *others):
        names = ("compute", "wait", "exchange", "data", "other")
        assert sum(run[f"{name}_share"] for name in names) == pytest.approx(1.0)
    assert (tmp_path / "out" / "report.html").stat().st_size < 2_000_000
    assert "printed by the script" in (tmp_path / "out" / "sync-seed-0.log").read_text()
    assert "printed by the script" not in stderr


def test_ctrl_c_ends_everything_and_prints_what_was_finished(compare, tmp_path):
    process = compare("-n", "2", "--strategies", "sync", "train.py", "endless")
    for line in process.stderr:
        if line.startswith("[2/2]"):
            break
    trace_file = tmp_path / "out" / "sync-seed-0" / "rank-0.jsonl"
    while not trace_file.exists() or b'"step"' not in trace_file.read_bytes():
        assert process.poll() is None
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    assert "\n 1 worker " in stdout
    assert re.search(r"sync +failed", stdout)
    assert "stopped by Ctrl-C" in stdout
    assert f"report: {tmp_path / 'out' / 'report.html'}" in stdout
    assert len(workers) >= 3
    assert not psutil.wait_procs(workers, timeout=5)[1]
