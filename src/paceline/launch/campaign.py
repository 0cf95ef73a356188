"""Runs one script under several strategies and seeds, one run after another: ``paceline compare``.

There is always a one-worker run to measure against. Seeds are the outer loop, so that an early end
leaves whole comparisons. How a run is carried out is :mod:`paceline.launch.run`'s business, what its
figures mean :mod:`paceline.compare`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from paceline.compare.figures import Figures, figures_of
from paceline.compare.rows import Row, check_seeds, unknown_target, with_speed_up, with_stability
from paceline.compare.target import Target
from paceline.errors import UsageError, bad_value
from paceline.launch.claim import claimed
from paceline.launch.request import RunRequest, checked, core_count, left_out_of
from paceline.launch.summary import FIRST_SIGNAL_EXIT, RunResult
from paceline.runs import Run, rank_files, read_run
from paceline.trials import Trial, as_file_name, parse_trial

ONE_WORKER = "1 worker"
LOG_LINES_SHOWN = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to compare: each trial with each number of workers. ``seeds``: how many, from 0.

    ``out``: holds a directory and a log a run. ``emulate``, ``virtual``: as in
    :class:`~paceline.launch.request.RunRequest`. ``recipe``: of every run; None for the script's.
    """

    script: Path
    args: tuple[str, ...]
    sizes: tuple[int, ...]
    trials: tuple[Trial, ...]
    seeds: int
    emulate: Path | None
    out: Path
    virtual: Path | None = None
    recipe: str | None = None

    def cells(self) -> Iterator[Cell]:
        """Every run, in the order in which they are carried out."""
        for seed in range(self.seeds):
            yield Cell(label=ONE_WORKER, workers=1, trial=Trial(strategy="sync"), seed=seed)
            for trial in self.trials:
                for workers in self.sizes:
                    label = self._label(trial, workers)
                    yield Cell(label=label, workers=workers, trial=trial, seed=seed)

    def _label(self, trial: Trial, workers: int) -> str:
        return str(trial) if len(self.sizes) == 1 else f"{trial}, {workers} workers"

    def request(self, cell: Cell) -> RunRequest:
        """The run that ``cell`` stands for.

        In an emulated or simulated cluster every worker stands for a machine of its own, so that the
        lone worker must not have more threads than each of the many; otherwise it gets the whole machine.
        """
        recipe = {} if self.recipe is None else {"recipe": self.recipe}
        many_machines = self.emulate is not None or self.virtual is not None
        return RunRequest(
            script=self.script,
            args=self.args,
            workers=cell.workers,
            strategy=cell.trial.strategy,
            overrides={**recipe, **cell.trial.overrides},
            lr_factor=cell.trial.lr_factor,
            emulate=self.emulate,
            virtual=self.virtual,
            out=self.out / cell.name,
            seed=cell.seed,
            threads=max(1, core_count() // max(self.sizes)) if many_machines else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One run of a comparison."""

    label: str
    workers: int
    trial: Trial
    seed: int

    @property
    def name(self) -> str:
        """As files are called."""
        return f"{as_file_name(self.label)}-seed-{self.seed}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    """How a cell ended: with its run and figures, or with a sentence that says why not."""

    cell: Cell
    run: Run | None = None
    figures: Figures | None = None
    failure: str = ""
    log_tail: str = ""
    interrupted: bool = False


@dataclass(kw_only=True, slots=True)
class Campaign:
    """The results so far. ``interrupted``: the user ended it before the last run. ``notes``: what a reader
    must know of all of them."""

    results: list[CellResult] = field(default_factory=list)
    interrupted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> list[Run]:
        """The runs that finished."""
        return [result.run for result in self.results if result.run is not None]

    @property
    def failed(self) -> bool:
        """Whether a run failed by itself."""
        return any(result.failure for result in self.results) and not self.interrupted

    def rows(self) -> list[Row]:
        """One row a strategy, the one-worker row first, with speed-up against it."""
        labels = dict.fromkeys(result.cell.label for result in self.results)
        rows = [_row(label, self.results) for label in labels]
        return with_speed_up(with_stability(rows), rows[0]) if rows else []


Execute = Callable[[RunRequest, TextIO], RunResult]
Tell = Callable[[str], None]


def trials_from(strategies: str | None, tries: Sequence[str]) -> tuple[Trial, ...]:
    """``sync,async,ssp:3`` and whole trials (see :mod:`paceline.trials`), each once.

    Raises :class:`UsageError`.
    """
    words = [word for word in (strategies or "").split(",") if word.strip()]
    if strategies is not None and not words:
        raise bad_value("strategies", strategies, "words with commas between: sync,async,ssp:3")
    return tuple(dict.fromkeys(parse_trial(text) for text in [*words, *tries]))


def sizes_from(text: str) -> tuple[int, ...]:
    """``1,2,4`` as numbers of workers, in order; the lone worker is always there. Raises UsageError."""
    parts = text.split(",")
    allowed = "whole numbers >= 1 with commas between, as in 1,2,4"
    if not all(part.strip().isdecimal() and int(part) >= 1 for part in parts):
        raise bad_value("workers", text, allowed)
    sizes = tuple(sorted({int(part) for part in parts} - {1}))
    if not sizes:
        raise bad_value(
            "workers", text, "at least one number > 1: one worker alone is always measured"
        )
    return sizes


def carry_out(plan: Plan, target: Target | None, execute: Execute, tell: Tell) -> Campaign:
    """Run every cell of ``plan`` and collect what came of it; ``tell`` hears of each.

    Raises :class:`UsageError` before the first run for a wrong value, and during the runs if the
    script seeds itself.
    """
    cells = list(plan.cells())
    for cell in cells:
        checked(plan.request(cell))
    notes = _left_out(plan, cells)
    for note in notes:
        tell(note)
    with claimed(plan.out, "compare"):
        _check_new(plan, cells)
        done = _carry_out(plan, cells, target, execute, tell)
        return replace(done, notes=notes)


def _left_out(plan: Plan, cells: Sequence[Cell]) -> tuple[str, ...]:
    """What of the cluster takes no part, for each number of workers; the lone one stands for rank 0 anyway."""
    sizes = {cell.workers: cell for cell in cells if cell.workers > 1}
    said = [left_out_of(plan.request(sizes[size])) for size in sorted(sizes)]
    return tuple(filter(None, said))


def _check_new(plan: Plan, cells: Sequence[Cell]) -> None:
    """Refuse to go over the runs of an earlier comparison, logs included."""
    old = [cell.name for cell in cells if (plan.out / cell.name).exists()]
    if old:
        raise bad_value(
            "out", str(plan.out), "a new or empty directory",
            f"It has {old[0]} of an earlier comparison; a run is never overwritten.",
        )  # fmt: skip


def _carry_out(
    plan: Plan, cells: Sequence[Cell], target: Target | None, execute: Execute, tell: Tell
) -> Campaign:
    campaign = Campaign()
    try:
        for number, cell in enumerate(cells, start=1):
            place = f"[{number}/{len(cells)}] {cell.label}, seed {cell.seed}"
            tell(f"{place} ...")
            result = _carry_out_cell(plan, cell, target, execute)
            campaign.results.append(result)
            tell(f"{place}: {_summary(result, plan)}")
            if target and number == 1 and result.figures:
                _tell_unknown(target, result.figures, tell)
            check_seeds([found.figures for found in campaign.results if found.figures])
            if result.interrupted:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        campaign.interrupted = True
    return campaign


def _tell_unknown(target: Target, first: Figures, tell: Tell) -> None:
    """At once, while little is lost: nobody wants to hear it after an hour of runs."""
    if unknown := unknown_target(target, [first]):
        tell(f"{unknown} Ctrl-C ends this; what was finished is kept.")


def _carry_out_cell(plan: Plan, cell: Cell, target: Target | None, execute: Execute) -> CellResult:
    log = plan.out / f"{cell.name}.log"
    with log.open("w", encoding="utf-8") as lines:
        result = execute(plan.request(cell), lines)
    if result.exit_code:
        return CellResult(
            cell=cell,
            failure=f"{result.sentence} (see {log})",
            log_tail=_tail(log),
            interrupted=result.exit_code >= FIRST_SIGNAL_EXIT,
        )
    if not rank_files(result.out):
        raise UsageError(
            f"{plan.script} trained nothing: it never iterated the batches of a paceline.Worker."
        )
    run = read_run(result.out)
    return CellResult(cell=cell, run=run, figures=figures_of(run, target))


def _summary(result: CellResult, plan: Plan) -> str:
    if result.figures is None:
        return "\n".join(filter(None, [result.failure, result.log_tail]))
    whose = "" if plan.virtual is None else " of the cluster's time"
    return f"{result.figures.wall_s:.1f} s{whose} training, {result.figures.samples_per_s:,.0f} samples/s"


def _row(label: str, results: Sequence[CellResult]) -> Row:
    own = [result for result in results if result.cell.label == label]
    return Row(
        label=label,
        runs=tuple(result.figures for result in own if result.figures is not None),
        failures=tuple(f"seed {r.cell.seed}: {r.failure}" for r in own if r.failure),
    )


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8").splitlines()[-LOG_LINES_SHOWN:])
