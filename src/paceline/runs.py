"""Reads a run's directory back into typed tables, whether the run has ended or still goes on.

Every analysis (compare, report, diagnose) starts here and sees nothing else of a run. This module
knows files and records; it computes no figure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from paceline import events, trace
from paceline.errors import UsageError

_DECISIONS = (*events.Fact.__args__, *events.Order.__args__)
R = TypeVar("R")


class NothingRecordedError(UsageError):
    """A run is there that has recorded nothing to read yet."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory}: the run has recorded nothing yet; try again in a moment.")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTrace:
    """What one worker recorded, in its own order. ``close`` is None while it runs, or if it died.

    ``setups``: one for each Worker that its script made; ``setup`` is the first.
    """

    rank: int
    setup: trace.Setup | None
    steps: tuple[trace.Step, ...]
    passes: tuple[trace.Pass, ...]
    metrics: tuple[trace.Metric, ...]
    notes: tuple[trace.Note, ...]
    close: trace.Close | None
    health: tuple[trace.Health, ...] = ()
    buckets: tuple[trace.Buckets, ...] = ()
    setups: tuple[trace.Setup, ...] = ()
    unscheduled: tuple[trace.Unscheduled, ...] = ()
    clocks: tuple[trace.Clocks, ...] = ()
    drifts: tuple[trace.Drift, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run as recorded. ``decisions``: the policy's facts and orders in the coordinator's serial
    order, empty where no server decided. ``summary``: ``run.json``, empty if there is none or if it is
    damaged; then ``missing`` says so in a sentence. The records are worth reading without it.
    """

    directory: Path
    ranks: tuple[RankTrace, ...]
    decisions: tuple[Any, ...]
    server_notes: tuple[trace.Note, ...]
    summary: Mapping[str, Any]
    missing: str = ""

    @property
    def name(self) -> str:
        """The directory's name: how people call the run."""
        return self.directory.resolve().name

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended yet, as far as is known: by its launcher, and a worker."""
        launched = bool(self.summary) and self.summary.get("ended", "") is None
        return launched and any(rank.close is None for rank in self.ranks)

    @property
    def setup(self) -> trace.Setup:
        """What the run was made of, as its lowest rank said it."""
        return next(rank.setup for rank in self.ranks if rank.setup is not None)

    @property
    def notes(self) -> list[trace.Note]:
        """Notices of all processes in order of time."""
        notes = [*self.server_notes, *(note for rank in self.ranks for note in rank.notes)]
        return sorted(notes, key=lambda note: note.time_s)

    @property
    def metrics(self) -> Sequence[trace.Metric]:
        """The run's logged metrics: those of the lowest rank that logged any."""
        return next((rank.metrics for rank in self.ranks if rank.metrics), ())

    @property
    def absent_ranks(self) -> list[int]:
        """Those that took part, and of which nothing is here."""
        return sorted(set(range(self.setup.world_size)) - {rank.rank for rank in self.ranks})

    @property
    def health(self) -> Sequence[trace.Health]:
        """Each parameter's gradient when it was looked at last, on the lowest rank that looked."""
        looks = next((rank.health for rank in self.ranks if rank.health), ())
        return tuple({look.parameter: look for look in looks}.values())


def read_run(directory: Path | str) -> Run:
    """The run recorded in ``directory``.

    Raises :class:`UsageError` if there is none, if it has recorded nothing yet, or if it was
    written in a format this version does not know.
    """
    run = read_workers(directory)
    server = run.directory / "server.jsonl"
    records = read_records(server) if server.exists() else []
    return replace(
        run,
        decisions=tuple(record for record in records if isinstance(record, _DECISIONS)),
        server_notes=_only(records, trace.Note),
    )


def read_workers(directory: Path | str) -> Run:
    """The run as :func:`read_run` gives it, without the server's record (the larger part)."""
    directory = Path(directory)
    files = rank_files(directory)
    if not files and (directory / "run.json").is_file():
        raise NothingRecordedError(directory)
    if not files:
        raise UsageError(
            f"{directory}: no run here (no rank-*.jsonl). "
            "Give the directory that 'paceline run' printed, such as runs/20260101-120000-train."
        )
    ranks = tuple(_rank_trace(rank, read_records(path)) for rank, path in files)
    if all(rank.setup is None for rank in ranks):
        raise NothingRecordedError(directory)
    summary, missing = read_summary(directory / "run.json")
    return Run(
        directory=directory, ranks=ranks, decisions=(), server_notes=(), summary=summary,
        missing=missing,
    )  # fmt: skip


def find_runs(path: Path | str) -> list[Path]:
    """Run directories at ``path``: itself, or those directly inside (the output of a compare)."""
    path = Path(path)
    if rank_files(path) or not path.is_dir():
        return [path]
    inside = sorted(child for child in path.iterdir() if child.is_dir() and rank_files(child))
    return inside or [path]


def rank_files(directory: Path) -> list[tuple[int, Path]]:
    """(rank, file) of every worker that recorded in ``directory``, in rank order."""
    files = directory.glob("rank-*.jsonl")
    named = [(path.stem.removeprefix("rank-"), path) for path in files]
    return sorted((int(number), path) for number, path in named if number.isdecimal())


def read_records(path: Path) -> list[trace.Record]:
    """The records of one trace file; a torn last line is ignored (the writer may be at it).

    Raises :class:`UsageError` if it cannot be read, or holds something else.
    """
    records: list[trace.Record] = []
    try:
        with path.open("rb") as lines:
            for record in trace.decode_lines(lines):
                _check_version(path, record)
                records.append(record)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read as a trace: {error.strerror}.") from error
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        if isinstance(error, UsageError):
            raise
        where = f"{path}, line {len(records) + 1}"
        raise UsageError(f"{where}: not a record of a paceline trace ({error}).") from error
    return records


def _check_version(path: Path, record: trace.Record) -> None:
    if isinstance(record, trace.Header) and record.format_version != trace.FORMAT_VERSION:
        raise UsageError(
            f"{path}: trace format {record.format_version}, but this paceline reads format "
            f"{trace.FORMAT_VERSION}. Read it with the version of paceline that wrote it."
        )


def _rank_trace(rank: int, records: list[trace.Record]) -> RankTrace:
    setups, closes = _only(records, trace.Setup), _only(records, trace.Close)
    return RankTrace(
        rank=rank,
        setup=setups[0] if setups else None,
        steps=_only(records, trace.Step),
        passes=_only(records, trace.Pass),
        metrics=_only(records, trace.Metric),
        notes=_only(records, trace.Note),
        close=closes[-1] if closes else None,
        health=_only(records, trace.Health),
        buckets=_only(records, trace.Buckets),
        setups=setups,
        unscheduled=_only(records, trace.Unscheduled),
        clocks=_only(records, trace.Clocks),
        drifts=_only(records, trace.Drift),
    )


def _only(records: Sequence[trace.Record], kind: type[R]) -> tuple[R, ...]:
    return tuple(record for record in records if isinstance(record, kind))


def read_summary(path: Path) -> tuple[Mapping[str, Any], str]:
    """What the launcher wrote into ``path`` (``run.json``), and a sentence if that cannot be read.

    Empty where there is none: another launcher started the run.
    """
    try:
        summary = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, _damaged(path, str(error.strerror))
    except ValueError as error:  # of JSON, or of UTF-8
        return {}, _damaged(path, f"not JSON: {error}")
    tables = ("request", "host", "versions")
    if not isinstance(summary, dict) or not all(
        isinstance(summary.get(name, {}), dict) for name in tables
    ):
        return {}, _damaged(path, "not a run's summary")
    return summary, ""


def _damaged(path: Path, why: str) -> str:
    return (
        f"{path} cannot be read ({why}): what was asked for, on which machine, and how it ended "
        "are not known."
    )
