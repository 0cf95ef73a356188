"""Checkpoints as directories: begun under a passing name, whole once renamed, the last few kept.

::

    checkpoints/
        000004-version-90/              one checkpoint: checkpoint.json and the files that it names
        000005-version-120/
        .partial-000006-4711/           being written by process 4711, or left there by its death

``checkpoint.json`` holds a body, its digest, and the size and digest of every other file: what is
not as it was written is noticed. The number in front is the order in which they were begun. This
module knows files; what is in the body is :mod:`paceline.worker.snapshot`'s. It imports no torch,
so that a launcher can look for the newest.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.errors import CheckpointError, UsageError

FORMAT = "paceline checkpoint"
FORMAT_VERSION = 1
BODY = "checkpoint.json"
POINTER = "saved.json"
"""In a run's directory: where its checkpoints are."""

_WHOLE = re.compile(r"(\d{6,})-version-\d+")
_PARTIAL = re.compile(r"\.partial-(\d{6,})-(\d+)")
_PIECE_BYTES = 2**20


@contextmanager
def begun(directory: Path) -> Iterator[Path]:
    """A new directory to write a checkpoint's files into; removed unless :func:`commit` renamed it.

    Raises CheckpointError for whatever the file system refuses inside.
    """
    partial = directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _clear_up(directory)
        partial = directory / f".partial-{_next_number(directory):06d}-{os.getpid()}"
        partial.mkdir()
        yield partial
    except OSError as error:
        raise refused(directory, error) from error
    finally:
        if partial != directory:
            shutil.rmtree(partial, ignore_errors=True)


def commit(partial: Path, body: dict[str, Any], *, keep: int) -> tuple[Path, int]:
    """Make what lies in ``partial`` a checkpoint, in one step; only the last ``keep`` stay.

    Returns its path and its size in bytes. May raise OSError, and then nothing has changed.
    """
    files = {path.name: _described(path) for path in sorted(partial.iterdir())}
    write(partial / BODY, _sealed({**body, "files": files}))
    number = _numbers(_PARTIAL, partial.name)
    whole = partial.parent / f"{number:06d}-version-{body['version']}"
    _sync(partial)
    os.rename(partial, whole)
    _sync(whole.parent)
    for old in found(whole.parent)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return whole, sum(path.stat().st_size for path in whole.iterdir())


def write(path: Path, data: bytes) -> None:
    """Write a file through to the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def found(directory: Path) -> list[Path]:
    """The whole checkpoints in ``directory``, oldest first."""
    if not directory.is_dir():
        return []
    whole = [path for path in directory.iterdir() if _WHOLE.fullmatch(path.name)]
    return sorted(whole, key=lambda path: _numbers(_WHOLE, path.name))


def newest(path: Path) -> Path:
    """The checkpoint at ``path``: itself, or the newest in it, or of the run recorded there.

    Raises UsageError if there is none.
    """
    for place in (path, path / "checkpoints", *reversed(_pointed_to(path))):
        if (place / BODY).is_file():
            return place.resolve()
        if whole := found(place):
            return whole[-1].resolve()
    raise UsageError(
        f"{path}: no whole checkpoint here. Give a directory that worker.save(...) wrote to, one "
        "checkpoint in it, or the directory of a run whose script calls worker.save(...)."
    )


def point_to(run: Path, place: Path) -> None:
    """Remember in a run's directory where checkpoints are from now on, or the one that it goes on from."""
    places = [str(one) for one in _pointed_to(run)]
    if str(place.resolve()) in places:
        return
    new = run / (POINTER + ".new")
    new.write_text(json.dumps({"checkpoints": [*places, str(place.resolve())]}), encoding="utf-8")
    os.replace(new, run / POINTER)


def read_body(checkpoint: Path) -> dict[str, Any]:
    """The body of a checkpoint. Raises CheckpointError if it is damaged or not one of ours."""
    path = checkpoint / BODY
    try:
        sealed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{checkpoint}: no checkpoint of paceline (no {BODY}).") from None
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}). {_OTHERS}") from error
    if not isinstance(sealed, dict) or sealed.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not written by paceline (no format {FORMAT!r}).")
    if sealed.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format {sealed.get('format_version')}, but this paceline reads format "
            f"{FORMAT_VERSION}. Read it with the version of paceline that wrote it."
        )
    body: dict[str, Any] = sealed.get("body", {})
    if sealed.get("sha256") != _digest_of(body):
        raise CheckpointError(f"{path}: damaged (its digest does not fit). {_OTHERS}")
    return body


def check_files(checkpoint: Path, body: dict[str, Any]) -> None:
    """Raise CheckpointError if a file of the checkpoint is missing or not as it was written."""
    for name, described in body["files"].items():
        path = checkpoint / name
        if not path.is_file():
            raise CheckpointError(f"{path}: missing. {_OTHERS}")
        if _described(path) != described:
            raise CheckpointError(f"{path}: damaged (size or digest do not fit). {_OTHERS}")


def refused(directory: Path, error: Exception) -> CheckpointError:
    """What to raise if a checkpoint cannot be written because of ``error``."""
    why = str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        why = f"the disk is full ({error.strerror})"
    return CheckpointError(
        f"No checkpoint could be written to {directory}: {why}. Earlier ones there are as they were, "
        "and training can go on (catch paceline.CheckpointError around worker.save)."
    )


_OTHERS = "Give another checkpoint, such as the one before it in the same directory."


def _clear_up(directory: Path) -> None:
    """Remove what processes left that died while they wrote."""
    for path in directory.iterdir():
        match = _PARTIAL.fullmatch(path.name)
        if match and not _is_alive(int(match[2])):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != os.getpid()  # this process is not writing another


def _next_number(directory: Path) -> int:
    names = [path.name for path in directory.iterdir()]
    taken = [_numbers(one, name) for name in names for one in (_WHOLE, _PARTIAL)]
    return max(taken, default=0) + 1


def _numbers(pattern: re.Pattern[str], name: str) -> int:
    match = pattern.fullmatch(name)
    return int(match[1]) if match else 0


def _pointed_to(run: Path) -> list[Path]:
    """What :func:`point_to` remembered, oldest first."""
    try:
        return [Path(one) for one in json.loads((run / POINTER).read_text())["checkpoints"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _sealed(body: dict[str, Any]) -> bytes:
    sealed = {
        "format": FORMAT, "format_version": FORMAT_VERSION, "sha256": _digest_of(body), "body": body,
    }  # fmt: skip
    return json.dumps(sealed, indent=1).encode()


def _digest_of(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _described(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def _sync(directory: Path) -> None:
    """Make a directory's names last."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
