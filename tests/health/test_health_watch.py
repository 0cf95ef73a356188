"""What a worker records and says of its gradients, and that looking changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import paceline
from paceline import trace
from paceline.runs import read_run


def trained(
    out: Path | None, health: int | bool, *, tiny: float = 1.0, **options: object
) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    runtime = paceline.Runtime(out=out)
    inputs = torch.randn(40, 3)
    loader = torch.utils.data.DataLoader(inputs, batch_size=4)
    with paceline.Worker(model, optimizer, health=health, runtime=runtime, **options) as worker:  # type: ignore[arg-type]
        for batch in worker.batches(loader):
            worker.step(worker(batch).square().mean() * tiny)
    return model


def records(out: Path) -> list[trace.Health]:
    return list(read_run(out).ranks[0].health)


def test_every_kth_window_is_recorded_for_each_parameter(tmp_path: Path) -> None:
    trained(tmp_path, 4)
    seen = records(tmp_path)
    assert [one.clock for one in seen] == [0] * 4 + [4] * 4 + [8] * 4
    assert [one.parameter for one in seen[:4]] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    steps = {one.clock: one for one in read_run(tmp_path).ranks[0].steps}
    for clock in (0, 4, 8):
        norms = [one.norm for one in seen if one.clock == clock]
        assert sum(n * n for n in norms) ** 0.5 == pytest.approx(steps[clock].norm, rel=1e-5)


def test_it_is_the_mean_of_the_window_before_clipping(tmp_path: Path) -> None:
    trained(tmp_path, True, accumulate=3, clip_norm=1e-3)
    steps = {one.clock: one for one in read_run(tmp_path).ranks[0].steps}
    for clock, step in steps.items():  # a step's norm is the one before clipping
        norms = [one.norm for one in records(tmp_path) if one.clock == clock]
        assert sum(n * n for n in norms) ** 0.5 == pytest.approx(step.norm, rel=1e-5)


def test_a_record_is_small(tmp_path: Path) -> None:
    trained(tmp_path, 1)
    lines = (tmp_path / "rank-0.jsonl").read_bytes().splitlines()
    assert max(len(line) for line in lines if line.startswith(b'["health"')) <= 400


def test_looking_changes_no_bit() -> None:
    plain, looked_at = trained(None, False), trained(None, True)
    for one, other in zip(plain.parameters(), looked_at.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_would_be_lost_is_said_once_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, True, tiny=1e-8)
    said = [line for line in capsys.readouterr().err.splitlines() if "0.weight" in line]
    assert len(said) == 1
    assert "would become zero as fp16" in said[0]
    assert "loss_scale='dynamic'" in said[0]
    notes = [note for note in read_run(tmp_path).notes if note.kind == "health"]
    assert len(notes) == 4


@pytest.mark.parametrize("value", [-1, 1.5, "10"])
def test_a_wrong_interval_is_refused(value: object) -> None:
    with pytest.raises(paceline.UsageError, match="health="):
        trained(None, value)  # type: ignore[arg-type]


def test_sparse_gradients_are_looked_at_where_they_are(tmp_path: Path) -> None:
    model = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    runtime = paceline.Runtime(out=tmp_path)
    with paceline.Worker(model, optimizer, health=True, runtime=runtime) as worker:
        for batch in worker.batches([torch.tensor([1, 4, 4])]):
            worker.step(worker(batch).sum())
    (look,) = records(tmp_path)
    assert (look.elements, look.largest) == (6, 2.0)


def test_the_rounding_that_is_left_of_a_gradient_is_no_cause_for_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bias before batch norm has no gradient: what is there is noise of the weights' size / 2^24."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(64, 8)
    with paceline.Worker(model, optimizer, health=True) as worker:
        for batch in worker.batches([inputs[:32], inputs[32:]]):
            worker.step((worker(batch) - 1).square().mean())
    assert "0.bias" not in capsys.readouterr().err
