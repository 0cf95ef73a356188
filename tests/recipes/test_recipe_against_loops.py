"""recipe="stable" against naive loops: one worker, joint updates, and pushes by themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recipe_script
import torch
from recipe_cells import APART, JOINT, Cell
from recipe_oracles import Parameters, apart, histories, joint

from paceline.runs import read_run
from support.runs import FinishedRun, run_script

SCRIPT = Path(__file__).parent / "recipe_script.py"
WORKERS = 2
CLOSE = 1e-10

pytestmark = [pytest.mark.xdist_group("recipes"), pytest.mark.usefixtures("one_thread")]


def distance(mine: Parameters, theirs: Parameters) -> float:
    """max|delta| / max|theta|, the largest over all tensors."""
    return max(float((mine[n] - p).abs().max() / p.abs().max()) for n, p in theirs.items())


@pytest.mark.parametrize("strategy", ["sync", "ssp:3", "async", "backup:1"])
@pytest.mark.parametrize("cell", [JOINT[0], JOINT[1], JOINT[3]], ids=lambda cell: cell.name)
def test_one_worker_is_the_naive_loop_under_every_strategy(
    cell: Cell, strategy: str, tmp_path: Path
) -> None:
    recipe_script.train(replace(cell, strategy=strategy), tmp_path)
    found = torch.load(tmp_path / f"{cell.name}.pt")
    assert distance(found["parameters"], joint(cell, 1)) <= CLOSE


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[FinishedRun, Path]:
    out = tmp_path_factory.mktemp("recipes")
    run = run_script(SCRIPT, [str(out)], workers=WORKERS)
    assert run.exit_code == 0, run.stderr[-4000:]
    return run, out


def found(out: Path, cell: Cell) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(out / f"{cell.name}.pt")
    return loaded


def test_joint_updates_are_plain_sync_with_nesterov_warm_up_and_clip(
    trained: tuple[FinishedRun, Path],
) -> None:
    for cell in JOINT:
        mine = found(trained[1], cell)
        assert distance(mine["parameters"], joint(cell, WORKERS)) <= CLOSE, cell.name
        assert mine["nesterov"] in (True, None)


def test_pushes_by_themselves_are_each_workers_own_momentum_in_the_recorded_order(
    trained: tuple[FinishedRun, Path],
) -> None:
    run, out = trained
    joint_on_server = [cell for cell in JOINT if cell.strategy != "sync:allreduce"]
    lives = list(histories(read_run(run.out).decisions))[len(joint_on_server) :]
    for cell, life in zip(APART, lives, strict=False):
        gap = distance(found(out, cell)["parameters"], apart(cell, WORKERS, life))
        assert gap <= CLOSE, f"{cell.name}: {gap:.1e}"


def test_the_optimizer_ends_with_what_it_would_have_kept_itself(
    trained: tuple[FinishedRun, Path],
) -> None:
    by_name = {cell.name: found(trained[1], cell)["state"] for cell in [*JOINT, *APART]}
    assert by_name["async"] == by_name["server"] == ["momentum_buffer"]
    assert by_name["server-adamw"] == ["exp_avg", "exp_avg_sq", "step"]
    assert by_name["async-adamw"] == ["exp_avg", "exp_avg_sq", "own_step", "step"]


@pytest.mark.parametrize("cell", [JOINT[0], JOINT[2]], ids=lambda cell: cell.name)
def test_joint_updates_resume_bit_for_bit(trained: tuple[FinishedRun, Path], cell: Cell) -> None:
    ends = torch.load(trained[1] / f"resumed-{cell.name}-0.pt")["ends"]
    assert all(torch.equal(ends[1][name], ends[2][name]) for name in ends[1])
    assert not torch.equal(ends[0]["last.weight"], ends[1]["last.weight"])


def test_each_worker_resumes_with_its_own_momentum(trained: tuple[FinishedRun, Path]) -> None:
    saved = [torch.load(trained[1] / f"resumed-async-{rank}.pt")["own"] for rank in range(WORKERS)]
    for before, after in saved:
        assert len(before) == len(after) == 6
        assert all(map(torch.equal, before, after))
    assert not torch.equal(saved[0][0][0], saved[1][0][0])


def test_the_start_line_says_what_the_recipe_does(trained: tuple[FinishedRun, Path]) -> None:
    said = trained[0].stderr
    assert (
        "recipe stable:6: norms clipped at 2 x their running mean, warm-up over 6 updates" in said
    )
    assert "Nesterov momentum, each worker its own" in said
    assert "first moment" in said
    assert "RMSprop on the server as it is" in said
    assert "share one momentum" not in said
