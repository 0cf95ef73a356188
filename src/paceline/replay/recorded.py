"""What is to be run again: the command line of a recorded run, and how far its record goes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from paceline.errors import UsageError, bad_value
from paceline.launch.request import RunRequest
from paceline.launch.summary import FILE_NAME, FIRST_SIGNAL_EXIT
from paceline.replay.record import SERVER_FILE, records_of
from paceline.runs import Run, rank_files, read_run

STOPPED = 3
_NEEDED = ("request", "threads")
_LEFT_OUT = {"emulate", "virtual"}
"""When a step ends is the record's to say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """A recorded run. ``summary``: its ``run.json``. ``versions``: the first and the last one it made;
    ``generations``: how often its script made a Worker."""

    directory: Path
    summary: dict[str, Any]
    versions: tuple[int, int]
    generations: int

    @property
    def exit_code(self) -> int | None:
        """None if the launcher did not live to say."""
        code: int | None = self.summary.get("exit_code")
        return code

    @property
    def is_torn(self) -> bool:
        """Whether the record breaks off somewhere, rather than end with the run's own end."""
        if self.exit_code is None or self.exit_code >= FIRST_SIGNAL_EXIT:
            return True
        halts = records_of(self.directory / SERVER_FILE, "halt")
        return self.exit_code == STOPPED and next(halts, None) is None

    def until(self, asked: int | None) -> int | None:
        """At which version to stop; None: at the run's own end. Raises UsageError."""
        first, last = self.versions
        if asked is not None and not first <= asked <= last:
            raise bad_value("until", asked, f"{first} to {last}, the versions that the run made")
        if asked is None and self.is_torn and self.generations == 1:
            return last
        return asked


def recorded(directory: Path) -> Recorded:
    """The run recorded in ``directory``. Raises UsageError if it cannot be run again."""
    path = directory / FILE_NAME
    files = rank_files(directory)
    if files and not path.is_file():
        raise UsageError(
            f"{directory}: no {FILE_NAME}, so the run was started by another launcher (torchrun, SLURM) "
            "and its command line is not on record. Record it with 'paceline run' to replay it."
        )
    run = read_run(directory)
    _check_whole(directory, run)
    versions = _versions(directory)
    if versions is None:
        raise UsageError(f"{directory}: the run made no update: there is nothing to replay.")
    return Recorded(
        directory=directory.resolve(),
        summary=dict(run.summary),
        versions=versions,
        generations=max(_generations(file) for _, file in files),
    )


def request_of(recorded: Recorded, *, out: Path, until: int | None, quiet: bool) -> RunRequest:
    """The recorded command line, to be recorded in ``out``; without emulated delays, which change
    no bits. Raises UsageError if the script is not where it was."""
    asked = recorded.summary["request"]
    if asked.get("hosts") is not None:
        raise UsageError(
            f"{recorded.directory}: a run on {asked['hosts']['count']} hosts. A replay has all workers on "
            "one host, which may add in another order; runs on several hosts cannot be replayed yet."
        )
    script, here = Path(asked["script"]), Path.cwd()
    there = recorded.summary.get("directory")
    if not script.is_file():
        raise UsageError(f"{script}: not found from {here}. Replay from {there}, where it was run.")
    known = {one.name for one in fields(RunRequest)} - _LEFT_OUT
    as_it_was = {name: value for name, value in asked.items() if name in known}
    anew = {
        "script": script,
        "args": tuple(_moved(arg, recorded.directory, out) for arg in asked["args"]),
        "threads": recorded.summary["threads"],
        "resume": _checkpoint(asked["resume"]),
        "replay": recorded.directory,
        "until": until,
        "out": out,
        "quiet": quiet,
    }
    return RunRequest(**{**as_it_was, **anew})


def place_for(run: Path, out: Path | None) -> Path:
    """Where to record the replay of ``run``: ``out``, else beside it, never over an earlier one.

    Raises UsageError for a place in the run itself.
    """
    if out is not None and out.resolve().is_relative_to(run.resolve()):
        raise bad_value("out", str(out), f"a directory outside {run}", "A run is never changed.")
    if out is not None:
        return out.resolve()
    stem = run.resolve().with_name(f"{run.resolve().name}-replay")
    attempt, path = 1, stem
    while path.exists():
        attempt += 1
        path = stem.with_name(f"{stem.name}-{attempt}")
    return path


def below(path: Path, run: Path, out: Path) -> Path:
    """``path``, or its counterpart in ``out`` if it lies in ``run``: a replay writes nothing there."""
    if not path.is_absolute() and Path.cwd().is_relative_to(run):
        return path  # anything would
    whole = path.resolve()
    return out / whole.relative_to(run) if whole.is_relative_to(run) else path


def _moved(arg: str, run: Path, out: Path) -> str:
    """An argument whose value is a path in ``run`` names the one in ``out``."""
    head, equals, value = arg.rpartition("=")
    moved = below(Path(value), run, out) if value else Path(value)
    return arg if moved == Path(value) else f"{head}{equals}{moved}"


def _checkpoint(path: str | None) -> Path | None:
    if path is None:
        return None
    if not Path(path).is_dir():
        raise UsageError(
            f"{path}: the checkpoint from which the recorded run went on is not there any more "
            "(worker.save(keep=...) keeps the last few). It cannot be replayed without it."
        )
    return Path(path)


def _check_whole(directory: Path, run: Run) -> None:
    """Refuse a directory that was copied in part: what is not on record cannot be kept to."""
    if run.missing:
        raise UsageError(f"{run.missing} Without its command line it cannot be run again.")
    server = directory / SERVER_FILE
    joined = {one.rank for one in records_of(server, "join")} or set(range(run.setup.world_size))
    if run.setup.groups:
        raise UsageError(
            f"{directory}: trained in groups ({run.setup.strategy}), which cannot be replayed yet."
        )
    ranks = sorted(joined - {one.rank for one in run.ranks})
    missing = [f"rank-{rank}.jsonl" for rank in ranks]
    if run.setup.world_size > 1 and run.setup.topology == "server" and not server.is_file():
        missing.append(SERVER_FILE)
    if missing:
        raise UsageError(
            f"{directory}: {', '.join(missing)} not found, so what was recorded there cannot be kept to. "
            "Copy the run's whole directory."
        )
    if absent := [name for name in _NEEDED if name not in run.summary]:
        raise UsageError(
            f"{directory / FILE_NAME}: {', '.join(absent)} not there, so the run cannot be run again."
        )


def _versions(directory: Path) -> tuple[int, int] | None:
    made: list[set[int]] = [{one.version for one in records_of(directory / SERVER_FILE, "update")}]
    if not made[0]:
        made = [
            {one.version + 1 for one in records_of(file, "step") if one.applied}
            for _, file in rank_files(directory)
        ]
    everywhere = set.intersection(*made)
    return (min(everywhere), max(everywhere)) if everywhere else None


def _generations(file: Path) -> int:
    return sum(1 for _ in records_of(file, "header"))
