"""Batch norm on real workers: joint statistics, agreed statistics, and nobody hangs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from norm_setting import SIZES, WITH_ONES, batches, loss_of, net, sgd

from support.runs import FinishedRun, run_script

SCRIPT = Path(__file__).parent / "script.py"
WORKERS = [3, pytest.param(2, marks=pytest.mark.full), pytest.param(4, marks=pytest.mark.full)]
LOCAL = ["sync_allreduce", "sync_server", "async", "ssp_3"]
State = dict[str, torch.Tensor]

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.xdist_group("batch-norm"),
    pytest.mark.usefixtures("one_thread"),
]


class Runs:
    """What the workers of one run wrote."""

    def __init__(self, workers: int, out: Path) -> None:
        self.workers, self.out = workers, out
        self.run: FinishedRun = run_script(SCRIPT, [str(out)], workers=workers)
        assert self.run.exit_code == 0, self.run.stderr[-4000:]

    def states(self, name: str) -> list[State]:
        paths = [self.out / f"{name}-rank{rank}.pt" for rank in range(self.workers)]
        return [torch.load(path, weights_only=True) for path in paths]

    def figures(self, name: str) -> list[dict[str, Any]]:
        paths = [self.out / f"{name}-rank{rank}.json" for rank in range(self.workers)]
        return [json.loads(path.read_text()) for path in paths]


@pytest.fixture(scope="module", params=WORKERS)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(request.param, tmp_path_factory.mktemp("norms"))


def one_process(workers: int) -> State:
    """The same updates by one process: each is the mean over a round's samples, as one batch."""
    model = net()
    optimizer = sgd(model)
    for _ in range(2):
        for first in range(0, len(WITH_ONES), workers):
            joined = batches(WITH_ONES)[first : first + workers]
            inputs, targets = map(torch.cat, zip(*joined, strict=True))
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()
    return model.state_dict()


def test_sync_is_one_process_over_the_joined_batches(runs: Runs) -> None:
    expected = one_process(runs.workers)
    first = runs.states("sync")[0]
    assert list(first) == list(expected), "plain keys"
    for name, value in expected.items():
        gap = (first[name] - value).abs().max() / value.abs().max().clamp(min=1e-12)
        assert gap <= 1e-10, f"{name}: {gap}"
    assert {one["topology"] for one in runs.figures("sync")} == {"allreduce"}


@pytest.mark.parametrize("name", ["sync", "wayward", "freeze", *(f"local-{one}" for one in LOCAL)])
def test_all_ranks_end_with_one_model_that_evaluates_as_in_plain_torch(
    runs: Runs, name: str
) -> None:
    states, figures = runs.states(name), runs.figures(name)
    for state in states:
        assert all(torch.equal(state[key], value) for key, value in states[0].items())
    assert len({one["loss"] for one in figures}) == 1, "the identical number on every rank"
    assert sum(one["share"] for one in figures) == sum(SIZES)
    model = net()
    model.load_state_dict(states[0])
    model.eval()
    inputs, targets = map(torch.cat, zip(*batches(), strict=True))
    with torch.no_grad():
        expected = float(loss_of(model(inputs), targets))
    assert float.fromhex(figures[0]["loss"]) == pytest.approx(expected, rel=1e-12)


def test_statistics_moved_but_where_they_were_frozen(runs: Runs) -> None:
    start = net().state_dict()
    for name in ("sync", *(f"local-{one}" for one in LOCAL)):
        state = runs.states(name)[0]
        assert not torch.equal(state["1.running_var"], start["1.running_var"]), name
    frozen = runs.states("freeze")[0]
    assert torch.equal(frozen["1.running_mean"], start["1.running_mean"])
    assert not torch.equal(frozen["1.weight"], start["1.weight"])


def test_accumulation_with_batch_norm_is_said_once(runs: Runs) -> None:
    size = SIZES[0]
    said = f"statistics of {runs.workers} x {size} = {runs.workers * size} samples"
    assert runs.run.stderr.count(said) == 1
    assert runs.run.stderr.count("batch norm takes") == 1


DYING = """
import os, signal, sys, torch, paceline
sys.path.insert(0, %r)
from norm_setting import batches, loss_of, net, sgd
model = net()
worker = paceline.Worker(model, sgd(model), batch_norm="sync")
if worker.rank == 1:
    def bad(*_): %s
    model[2].register_forward_hook(bad)
for inputs, targets in worker.batches(batches()):
    worker.step(loss_of(worker(inputs), targets))
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("how", "heard"),
    [("raise KeyError('in the forward')", "KeyError: 'in the forward'"),
     ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1"),
     ("os.kill(os.getpid(), signal.SIGSTOP)", "rank 1")],
)  # fmt: skip
def test_a_rank_lost_in_its_forward_ends_the_others_meeting(how: str, heard: str) -> None:
    script = DYING % (str(SCRIPT.parent), how)
    run = run_script(script, workers=2, evict_after_s=3.0)
    assert run.exit_code != 0
    said = [line for line in run.stderr.splitlines() if line.startswith("[0] ")]
    assert any(heard in line for line in said), run.stderr
    assert run.wall_s < 30, "most of it to start"
