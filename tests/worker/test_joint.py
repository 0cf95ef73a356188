"""What two real workers settle together: failures reach the others, differences are named."""

from __future__ import annotations

import pytest

from support.runs import run_script

HEAD = """
import sys, torch, paceline
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
rank = paceline.current_launch().rank
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(46, 4), torch.randint(0, 2, (46,)))
loader = DataLoader(data, batch_size=4, shuffle=True)
"""

LOOP = """
for number, (x, y) in enumerate(worker.batches(loader)):
    {body}
    worker.step(nn.functional.cross_entropy(worker(x), y))
"""


@pytest.mark.parametrize("strategy", ["sync:server", "sync:allreduce"])
def test_an_exception_stops_the_others_with_its_text(strategy: str) -> None:
    script = HEAD + "worker = paceline.Worker(model, optimizer)\n"
    script += LOOP.format(body="if rank == 1 and number == 2: raise KeyError('the third batch')")
    run = run_script(script, workers=2, strategy=strategy)
    assert run.exit_code == 1
    others = [line for line in run.stderr.splitlines() if line.startswith("[0] ")]
    assert any("KeyError: 'the third batch'" in line for line in others), run.stderr
    assert any("rank 1" in line for line in others), run.stderr


@pytest.mark.parametrize(
    "strategy", ["ssp:3", pytest.param("sync:allreduce", marks=pytest.mark.full)]
)
def test_a_break_without_close_ends_well_and_buffers_are_agreed(strategy: str) -> None:
    script = HEAD + "worker = paceline.Worker(model, optimizer)\n"
    script += LOOP.format(body="if rank == 1 and number == 2: break")
    script += """
with worker.evaluate():
    state = torch.cat([v.double().flatten() for v in model.state_dict().values()])
    count = sum(len(x) for x, _ in worker.batches(loader))
    print(state.sum().item(), worker.mean(1.0 * rank, count), worker.samples)
for x, y in worker.batches(loader):
    break
"""
    run = run_script(script, workers=2, strategy=strategy)
    assert run.exit_code == 0, run.stderr
    assert run.lines(0) == run.lines(1) != []
    share_of_rank_1 = float(run.lines(0)[0].split()[1])
    assert share_of_rank_1 == pytest.approx(22 / 46)


def test_models_that_differ_are_named_on_every_rank() -> None:
    script = HEAD + "if rank == 1: model[0] = nn.Linear(4, 7)\n"
    script += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    script += "worker = paceline.Worker(model, optimizer)\n"
    run = run_script(script, workers=2)
    assert run.exit_code == 1
    for rank in (0, 1):
        said = [s for s in run.stderr.splitlines() if s.startswith(f"[{rank}] ")]
        assert any("shape of 0.weight" in line for line in said), run.stderr


def test_scripts_that_part_ways_are_told_where() -> None:
    script = HEAD + "worker = paceline.Worker(model, optimizer)\n"
    script += "worker.mean(1.0) if rank == 0 else worker.stop(False)\n"
    run = run_script(script, workers=2)
    assert run.exit_code == 1
    assert "worker.mean" in run.stderr
    assert "worker.stop" in run.stderr
