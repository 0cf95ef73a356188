"""Whether a replay was the recorded run again: decided from both directories alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from paceline import checkpoints, trace
from paceline.encounters import Differs
from paceline.errors import UsageError
from paceline.launch.summary import FIRST_SIGNAL_EXIT, RunResult
from paceline.replay.record import SERVER_FILE, records_of
from paceline.replay.recorded import Recorded
from paceline.replay.standing import Standing, standings
from paceline.runs import rank_files, read_run

DIFFERS = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """How a replay ended. ``updates``: made, all equal to the recorded ones unless ``differs`` says which
    was not. ``digest``: of the final parameters. ``until``: the version it stopped at; then
    ``checkpoint`` and ``standings`` say how things stood."""

    exit_code: int
    sentence: str
    out: Path
    updates: int
    digest: str | None = None
    until: int | None = None
    differs: Differs | None = None
    checkpoint: Path | None = None
    standings: list[Standing] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "schema": 1,
            "equal": self.exit_code == 0,
            **asdict(self),
            "standings": [one.as_json() for one in self.standings],
            "out": str(self.out),
            "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
        }


def judge(before: Recorded, result: RunResult, until: int | None) -> Replayed:
    """The verdict on the replay that ended with ``result`` and was to stop at ``until``, if at all."""
    updates = _updates(result.out)
    differs = first_difference(result.out)
    digest = next(chain.from_iterable(_digests(result.out).values()), None)
    if differs is not None:
        code = DIFFERS
        sentence = (
            f"the replay differs from the record at {differs}{also_differing(differs, result.out)}"
        )
    elif result.exit_code >= FIRST_SIGNAL_EXIT:
        code, sentence = result.exit_code, f"stopped after {_count(updates)}, all as recorded"
    elif until is not None and _version(result.out) == until:
        return _stopped_at(until, before, result.out, updates)
    else:
        code, sentence = _of_the_end(before, result, updates)
    return Replayed(
        exit_code=code, sentence=sentence, out=result.out, updates=updates, digest=digest,
        until=until, differs=differs,
    )  # fmt: skip


def also_differing(first: Differs, out: Path) -> str:
    """Which other ranks found a difference in the same window, if any did before everybody stopped."""
    found = (one for _, file in rank_files(out) for one in records_of(file, "differs"))
    also = sorted({one.rank for one in found if one.clock == first.clock} - {first.rank})
    return f" (there ranks {', '.join(map(str, also))} differ too)" if also else ""


def first_difference(out: Path) -> Differs | None:
    """Where the replay in ``out`` first left its record: the earliest window that did, else the server's word.

    A worker that finds a difference fails, which the server then sees as another.
    """
    found = [one for _, file in rank_files(out) for one in records_of(file, "differs")]
    found = found or list(records_of(out / SERVER_FILE, "differs"))[:1]
    return min(found, key=lambda one: (one.clock, "loss" not in one.field, one.rank), default=None)


def _of_the_end(before: Recorded, result: RunResult, updates: int) -> tuple[int, str]:
    """Exit code and sentence of a replay that went to the run's own end."""
    made = _updates(before.directory)
    if updates != made or (before.exit_code is not None and result.exit_code != before.exit_code):
        return result.exit_code or DIFFERS, (
            f"{_count(updates)} of {made} were replayed, all as recorded; then {result.sentence}, "
            f"where the record has: {before.summary.get('sentence', 'nothing')}"
        )
    then, now = _digests(before.directory), _digests(result.out)
    for rank, digests in then.items():
        if now.get(rank) != digests:
            return DIFFERS, (
                f"{_count(updates)} were replayed as recorded, but the final parameters of rank {rank} "
                f"differ: {_short(digests)} was recorded, now it is {_short(now.get(rank, []))}"
            )
    if not any(then.values()):
        return 0, f"replayed {_count(updates)}; then, as recorded: {result.sentence}"
    last = next(iter(then.values()))
    return 0, f"replayed {_count(updates)} bit for bit: digest {_short(last)} equal"


def _stopped_at(until: int, before: Recorded, out: Path, updates: int) -> Replayed:
    why = (
        "where its record breaks off"
        if before.is_torn and until == before.versions[1]
        else "as asked"
    )
    checkpoint = _checkpoint(out)
    where = "; no checkpoint: whoever made it was gone" if checkpoint is None else ""
    return Replayed(
        exit_code=0,
        sentence=f"replayed {_count(updates)}, all as recorded: stopped at version {until}, {why}{where}",
        out=out,
        updates=updates,
        until=until,
        checkpoint=checkpoint,
        standings=_standings(out, until),
    )


def _standings(out: Path, until: int) -> list[Standing]:
    run = read_run(out)
    if run.decisions:
        return standings(run.decisions, until)
    return [
        Standing(rank=one.rank, clock=one.steps[-1].clock + 1, version=one.steps[-1].version)
        for one in run.ranks
        if one.steps
    ]


def _checkpoint(out: Path) -> Path | None:
    try:
        return checkpoints.newest(out)
    except UsageError:
        return None


def _updates(directory: Path) -> int:
    """Updates on record, over all the Workers that a script made."""
    server = sum(1 for _ in records_of(directory / SERVER_FILE, "update"))
    return server or min((_applied(file) for _, file in rank_files(directory)), default=0)


def _applied(file: Path) -> int:
    return sum(one.applied for one in _steps(file))


def _version(directory: Path) -> int:
    server = [one.version for one in records_of(directory / SERVER_FILE, "update")]
    own = (
        max((s.version + s.applied for s in _steps(file)), default=0)
        for _, file in rank_files(directory)
    )
    return max(server) if server else min(own, default=0)


def _steps(file: Path) -> Iterator[trace.Step]:
    return (one for one in records_of(file, "step") if isinstance(one, trace.Step))


def _digests(directory: Path) -> dict[int, list[str]]:
    """Of every rank that finished: its final parameters, Worker by Worker."""
    found = {}
    for rank, file in rank_files(directory):
        ends = [one for one in records_of(file, "close") if one.reason == "finished"]
        if ends:
            found[rank] = [one.digest for one in ends]
    return found


def _short(digests: list[str]) -> str:
    return ", ".join(one[:16] for one in digests) or "none"


def _count(updates: int) -> str:
    return "1 update" if updates == 1 else f"{updates:,} updates"
