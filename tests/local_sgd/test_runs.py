"""Local SGD on real processes: what is sent, what the report says, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.report.drifts import apart
from paceline.report.page import render_page
from paceline.runs import Run, read_run
from support.leaks import assert_nothing_is_left
from support.runs import run_script

pytestmark = [pytest.mark.full, pytest.mark.timeout(150)]

SCRIPT = """
import sys, torch, paceline
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 200), nn.BatchNorm1d(200), nn.Tanh(), nn.Linear(200, 3))
data = TensorDataset(torch.randn(512, 8), torch.randint(0, 3, (512,)))
loader = DataLoader(data, batch_size=4, shuffle=True)
worker = paceline.Worker(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
{before}
for _ in range(2):
    for x, y in worker.batches(loader):
        worker.step(nn.functional.cross_entropy(worker(x), y))
    with worker.evaluate():
        total = sum(worker(x).sum().item() for x, _ in worker.batches(loader))
        print(worker.mean(total, 1.0))
worker.close()
"""


def run_of(strategy: str) -> Run:
    run = run_script(SCRIPT.format(before="worker.verify(every=8)"), workers=2, strategy=strategy)
    assert run.exit_code == 0, run.stderr[-3000:]
    assert run.lines(0) == run.lines(1) != []
    assert_nothing_is_left(run)
    return read_run(run.out)


def sent_bytes(run: Run) -> int:
    return sum(step.sent_bytes for step in run.ranks[0].steps)


def test_local_8_sends_an_eighth_of_syncs_bytes() -> None:
    """128 batches for two: 64 windows a pass, 8 exchanges."""
    sync, local = run_of("sync:allreduce"), run_of("local:8")
    assert len(sync.ranks[0].steps) == len(local.ranks[0].steps) == 128
    assert sum(step.sent_bytes > 0 for step in local.ranks[0].steps) == 16
    assert sent_bytes(local) == pytest.approx(sent_bytes(sync) / 8, rel=0.02)
    digests = {rank.close.digest for rank in local.ranks if rank.close is not None}
    assert len(digests) == 1


def test_local_inf_drifts_and_the_report_says_by_how_much() -> None:
    run = run_of("local:inf")
    assert len({rank.close.digest for rank in run.ranks if rank.close is not None}) == 2
    for rank in run.ranks:
        (_, first), (_, second) = apart(rank)
        assert 0.001 < first < second
        assert f"{second:.2%}" in render_page([run])


@pytest.mark.parametrize(
    ("strategy", "before", "said"),
    [
        ("local:inf", "worker.save('c')", "drift apart"),
        ("local:4", "paceline.Worker(model, worker, batch_norm='sync')", "no step in common"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    tmp_path: Path, strategy: str, before: str, said: str
) -> None:
    text = SCRIPT.format(before=before)
    if "batch_norm" in before:
        text = text.replace("momentum=0.9))\n", "momentum=0.9), batch_norm='sync')\n").replace(
            before, ""
        )
    run = run_script(text, workers=2, strategy=strategy)
    assert run.exit_code != 0
    assert said in run.stderr
