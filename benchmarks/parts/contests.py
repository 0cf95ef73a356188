"""Step time against DDP: models A, B, C under the strategies, Hogwild and DDP's own hooks.

DDP is started once per model and number of workers, and is put back to its beginning before each
contender's series, so that both sides have trained equally when their parameters are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from harness.bench import Bench
from harness.checks import CHECKS, end_of
from harness.pairing import in_pairs
from harness.results import Row
from harness.sides import Launch, Side, SideFailedError, forking, paceline_run, torch_group

LONGER = 2
"""Blocks of workers that do not wait for each other are this many times as long: a block ends with its
slowest worker, up to a step after the first, and that is not what a step takes."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """One contender against DDP. ``check``: what has to agree at its end (:mod:`harness.checks`).

    ``joint``: its workers step together.
    """

    key: str
    task: str
    workers: int
    contender: Launch
    check: str
    momentum: float = 0.9
    accumulate: int = 1
    joint: bool = True

    @property
    def reference(self) -> tuple[str, int, int]:
        """Contests with the same one share a DDP."""
        return self.task, self.workers, self.accumulate


def measure(bench: Bench) -> Iterator[Row]:
    """The rows of all contests."""
    wanted = [contest for contest in contests() if bench.wants(contest.key)]
    for _, group in groupby(wanted, key=lambda contest: contest.reference):
        yield from _against_one_ddp(bench, list(group))


def contests() -> list[Contest]:
    """Everything that is compared, grouped by what it is compared with."""
    large = [contest for workers in (2, 4) for contest in _model_a(workers)]
    small = [_ours("B", workers, word) for workers in (2, 4) for word in ("sync", "sync:allreduce")]
    transformer = [_ours("C", workers, "sync") for workers in (2, 4)]
    return [*large, *small, *transformer, _ours("A", 2, "sync", accumulate=8)]


def _model_a(workers: int) -> list[Contest]:
    return [
        _ours("A", workers, "sync:allreduce"),
        _ours("A", workers, "sync"),
        _ours("A", workers, "async"),
        _ours("A", workers, "async", momentum=0.0),
        _hogwild(workers, momentum=0.9),
        _hogwild(workers, momentum=0.0),
        _hook(workers, "fp16"),
    ]


def _ours(
    task: str, workers: int, strategy: str, *, momentum: float = 0.9, accumulate: int = 1
) -> Contest:
    launch = paceline_run(
        "ours.py", "--task", task, "--momentum", str(momentum),
        workers=workers, strategy=strategy, accumulate=accumulate,
    )  # fmt: skip
    name = f"{task} N={workers} {strategy.removeprefix('sync:')}"
    name += "" if momentum else " no-momentum"
    return Contest(
        key=name + (f" accumulate={accumulate}" if accumulate > 1 else ""),
        task=task,
        workers=workers,
        contender=launch,
        check="loss" if strategy == "async" else "parameters",
        momentum=momentum,
        accumulate=accumulate,
        joint=strategy != "async",
    )


def _hogwild(workers: int, *, momentum: float) -> Contest:
    return Contest(
        key=f"A N={workers} (Hogwild{'' if momentum else ' no-momentum'})",
        task="A",
        workers=workers,
        contender=forking(
            "hogwild.py", "--task", "A", "--momentum", str(momentum), workers=workers
        ),
        check="none",
        momentum=momentum,
        joint=False,
    )


def _hook(workers: int, hook: str) -> Contest:
    return Contest(
        key=f"A N={workers} (DDP {hook} hook)",
        task="A",
        workers=workers,
        contender=torch_group("ddp.py", "--task", "A", "--hook", hook, workers=workers),
        check="none",
    )


def _against_one_ddp(bench: Bench, group: Sequence[Contest]) -> Iterator[Row]:
    first = group[0]
    ddp = torch_group(
        "ddp.py", "--task", first.task, "--accumulate", str(first.accumulate),
        workers=first.workers,
    )  # fmt: skip
    try:
        with bench.started(ddp) as (peer,):
            for contest in group:
                yield _row(bench, contest, peer)
    except SideFailedError as error:
        yield Row(key=f"{first.task} N={first.workers} DDP", value=None, failure=str(error))


def _long_enough(bench: Bench, contest: Contest) -> Bench:
    return bench if contest.joint else replace(bench, block_s=LONGER * bench.block_s)


def _row(bench: Bench, contest: Contest, peer: Side) -> Row:
    try:
        with bench.started(contest.contender) as (ours,):
            peer.ask("reset", momentum=contest.momentum)
            before = end_of(peer, bench.directory)
            series = in_pairs(ours, peer, _long_enough(bench, contest), contest.key)
            ends = end_of(ours, bench.directory), end_of(peer, bench.directory)
    except SideFailedError as error:
        if error.side is peer:  # nobody of its group can be compared
            raise
        return Row(key=contest.key, value=None, failure=str(error))
    note, failure = CHECKS[contest.check](series, *ends, before)
    return series.row(contest.key, note=note, failure=failure)
