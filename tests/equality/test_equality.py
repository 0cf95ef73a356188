"""paceline's updates against naive loops: what must be bit-identical is, the rest is close.

Bit-identical: one worker = the plain loop; ``sync:server`` = ``ssp:0`` = the list of workers with
average, step and broadcast; ``async:sum`` and ``ssp:2:sum`` with SGD = receive, subtract, reply, in
the recorded order; ranks among themselves, always; and all of this in virtual time, and between two
hosts (network namespaces; ``full``), with a shard on each, too.
Close: ``sync:allreduce``, and everything against one undistributed process that computes each
update's samples as one batch.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from cells import DTYPES, JOINT, Cell, chosen
from oracles import (
    Parameters,
    one_large_batch,
    plain_loop,
    receive_subtract_reply,
    workers_average_step_broadcast,
)

from paceline import events
from paceline.runs import read_run
from support.hosts import Launched, gathered, two_hosts
from support.runs import run_script

SEED = 11
SCRIPT = Path(__file__).parent / "script.py"
CLUSTER = Path(__file__).parent / "cluster.toml"
CLOSE = dict(zip(DTYPES, (1e-10, 1e-5), strict=True))
History = list[tuple[str, int, int, tuple[int, ...]]]


class Trained:
    """One spawn of N workers, all cells trained in it."""

    def __init__(self, *, workers: int, which: str, out: Path, where: str) -> None:
        self.workers, self.out, self.virtual = workers, out, where == "virtual"
        self.cells = chosen(which, workers)
        args = [str(out), which, str(SEED)]
        if where in ("hosts", "shards"):
            recorded = _on_two_hosts(args, workers, out, divided=which == "divided")
        else:
            recorded = _on_this_one(args, workers, virtual=self.virtual)
        self.histories = _histories(recorded) if workers > 1 else []

    def parameters(self, cell: Cell, rank: int = 0) -> Parameters:
        path = self.out / f"{cell.name}-rank{rank}.pt"
        loaded: Parameters = torch.load(path, weights_only=True)
        return loaded

    def history(self, cell: Cell) -> History:
        """The serial order of this cell's server run (all-reduce cells have none of their own)."""
        on_server = [c for c in self.cells if self.virtual or c.strategy != "sync:allreduce"]
        return self.histories[on_server.index(cell)]


def _on_this_one(args: list[str], workers: int, *, virtual: bool) -> Path:
    cluster = CLUSTER if virtual else None
    run = run_script(SCRIPT, args, workers=workers, timeout_s=1500, virtual=cluster)
    assert run.exit_code == 0, run.stderr[-4000:]
    return run.out


def _on_two_hosts(args: list[str], workers: int, out: Path, *, divided: bool) -> Path:
    words = ("--shards", "hosts") if divided else ()
    with two_hosts() as places:
        launched = Launched(
            places, SCRIPT, args, workers=workers // 2, out=out, words=words,
        )  # fmt: skip
        for end in launched.wait(1500):
            assert end.exit_code == 0, end.said[-4000:]
            said = re.search(r"divided: (\S+) MB in the server, (\S+) MB in shard 1", end.said)
            assert bool(said) == divided
            if said:
                here, there = float(said[1]), float(said[2])
                assert 0 < here < 2 * there < 4 * here, said[0]
    return gathered(out)


def _histories(directory: Path) -> list[History]:
    """Starts and updates of each Worker's life, in serial order."""
    histories: list[History] = []
    passes: dict[int, int] = {}
    base = 0
    for decision in read_run(directory).decisions:
        if isinstance(decision, events.Join) and (not histories or histories[-1]):
            histories.append([])
            passes = {}
        elif isinstance(decision, events.Request):
            base = base if passes else decision.pass_id
            passes[decision.rank] = decision.pass_id
        elif isinstance(decision, events.Start):
            number = passes[decision.rank] - base
            histories[-1].append(("start", decision.rank, number, decision.batches))
        elif isinstance(decision, events.Update):
            histories[-1].extend(("update", rank, 0, ()) for rank in decision.ranks)
    return histories


def _setting(workers: int, which: str, where: str = "") -> object:
    name = f"{workers}-{where}{'-' if where else ''}workers-{which}"
    group = pytest.mark.xdist_group(f"equality-{name}")  # one process spawns it once
    quick = (
        which == "subset" and where != "hosts" and workers != 3
    )  # two and four say what three would
    marks = [group] if quick else [group, pytest.mark.full]
    return pytest.param((workers, which, where), id=name, marks=marks)


SETTINGS = [_setting(n, which) for which in ("subset", "full") for n in (1, 2, 3, 4)]
SETTINGS += [_setting(4, "subset", "virtual"), _setting(3, "full", "virtual")]
SETTINGS += [_setting(2, "subset", "hosts"), _setting(4, "subset", "hosts")]
SETTINGS += [_setting(2, "divided", "shards"), _setting(4, "divided", "shards")]


@pytest.fixture(scope="module", params=SETTINGS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    workers, which, where = request.param
    out = tmp_path_factory.mktemp("cells")
    return Trained(workers=workers, which=which, out=out, where=where)


def differing(mine: Parameters, theirs: Parameters) -> list[str]:
    return [name for name in theirs if not torch.equal(mine[name], theirs[name])]


def distance(mine: Parameters, theirs: Parameters) -> float:
    """max|delta| / max|theta|, the largest over all tensors."""
    return max(
        float((mine[name] - p).abs().max() / p.abs().max().clamp(min=1e-12))
        for name, p in theirs.items()
    )


pytestmark = [pytest.mark.timeout(1600), pytest.mark.usefixtures("one_thread")]


def test_ranks_end_with_the_same_bits(trained: Trained) -> None:
    for cell in trained.cells:
        first = trained.parameters(cell)
        for rank in range(1, trained.workers):
            assert not differing(trained.parameters(cell, rank), first), f"{cell.name} rank {rank}"


def test_one_worker_is_the_plain_loop_bit_for_bit(trained: Trained) -> None:
    if trained.workers != 1:
        return
    for cell in trained.cells:
        assert not differing(trained.parameters(cell), plain_loop(cell, SEED)), cell.name


def test_the_server_is_average_step_broadcast_bit_for_bit(trained: Trained) -> None:
    if trained.workers == 1:
        return
    for cell in trained.cells:
        if cell.strategy in ("sync:server", "ssp:0"):
            oracle = workers_average_step_broadcast(cell, SEED, trained.workers)
            assert not differing(trained.parameters(cell), oracle), cell.name


def test_every_joint_cell_is_close_to_one_large_batch(trained: Trained) -> None:
    for cell in trained.cells:
        if cell.strategy in JOINT:
            oracle = one_large_batch(cell, SEED, trained.workers)
            gap = distance(trained.parameters(cell), oracle)
            assert gap <= CLOSE[cell.dtype], f"{cell.name}: {gap:.2e}"


def test_async_is_receive_subtract_reply_in_the_recorded_order_bit_for_bit(
    trained: Trained,
) -> None:
    if trained.workers == 1:
        return
    for cell in trained.cells:
        if cell.strategy not in JOINT:
            oracle = receive_subtract_reply(cell, SEED, lambda c=cell: trained.history(c))
            assert not differing(trained.parameters(cell), oracle), cell.name
