"""A checkpoint's directory is whole or not there, whatever refuses or dies while it is written."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from paceline import CheckpointError, UsageError, checkpoints


def save(directory: Path, version: int, keep: int = 3, text: str = "weights") -> Path:
    with checkpoints.begun(directory) as partial:
        checkpoints.write(partial / "model", text.encode())
        checkpoints.write(partial / "state", b"state" * 100)
        return checkpoints.commit(partial, {"version": version}, keep=keep)[0]


def load(path: Path) -> dict[str, Any]:
    found = checkpoints.newest(path)
    body = checkpoints.read_body(found)
    checkpoints.check_files(found, body)
    return body


def test_the_last_k_are_kept_and_the_last_begun_is_the_newest(tmp_path: Path) -> None:
    for version in (5, 10, 15, 7):  # one goes back to an earlier version, and on from there
        save(tmp_path, version)
    names = [path.name for path in checkpoints.found(tmp_path)]
    assert names == ["000002-version-10", "000003-version-15", "000004-version-7"]
    assert load(tmp_path)["version"] == 7
    assert load(tmp_path / "000003-version-15")["version"] == 15


def test_a_run_points_to_its_checkpoints_or_to_those_it_came_from(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    new.mkdir()
    old.mkdir()
    checkpoint = save(tmp_path / "elsewhere", 5)
    checkpoints.point_to(old, tmp_path / "elsewhere")
    checkpoints.point_to(new, checkpoint)
    assert checkpoints.newest(old) == checkpoints.newest(new) == checkpoint
    checkpoints.point_to(new, tmp_path / "begun")  # nothing is whole there yet
    assert checkpoints.newest(new) == checkpoint
    begun = save(tmp_path / "begun", 5)
    assert checkpoints.newest(new) == begun
    inside = save(new / "checkpoints", 6)
    assert checkpoints.newest(new) == inside


def test_where_there_is_none_the_error_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / ".partial-000001-1").mkdir()
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match=r"no whole checkpoint here.*worker\.save"):
            checkpoints.newest(place)


def test_damaged_and_foreign_files_are_refused_with_their_name(tmp_path: Path) -> None:
    def spoiled(change: Any) -> str:
        path = save(tmp_path, 1)
        change(path)
        with pytest.raises(CheckpointError) as caught:
            load(path)
        assert str(path) in str(caught.value)
        return str(caught.value)

    def edit(name: str, old: bytes, new: bytes) -> Any:
        def change(path: Path) -> None:
            data = (path / name).read_bytes()
            assert old in data
            (path / name).write_bytes(data.replace(old, new, 1))

        return change

    assert "model: damaged" in spoiled(edit("model", b"w", b"W"))
    assert "state: damaged" in spoiled(edit("state", b"state", b""))
    assert "model: missing" in spoiled(lambda path: (path / "model").unlink())
    assert "digest does not fit" in spoiled(
        edit("checkpoint.json", b'"version": 1', b'"version": 2')
    )
    assert "cannot be read" in spoiled(edit("checkpoint.json", b"}", b""))
    assert "not written by paceline" in spoiled(edit("checkpoint.json", b"paceline", b"someone"))
    assert "format 7" in spoiled(
        edit("checkpoint.json", b'"format_version": 1', b'"format_version": 7')
    )
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    with pytest.raises(CheckpointError, match="no checkpoint of paceline"):
        checkpoints.read_body(foreign)


def attempt(directory: Path) -> str:
    """Save; what the error says, or "" if there is none."""
    try:
        save(directory, 2, text="newer")
    except CheckpointError as error:
        return str(error)
    return ""


STEPS = ["mkdir", "open", "fsync", "rename"]


@pytest.mark.parametrize("step", STEPS)
def test_whatever_the_disk_refuses_the_old_one_stays_and_the_next_try_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Each call of ``step`` that a save makes fails in turn: the disk is full."""
    save(tmp_path, 1)
    home = Path if step in ("mkdir", "open") else os
    real = getattr(home, step)
    failed = 0
    for at in range(20):
        calls = 0

        def failing(*arguments: Any, at: int = at, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **named)

        with monkeypatch.context() as patched:
            patched.setattr(home, step, failing)
            refusal = attempt(tmp_path)
        failed += bool(refusal)
        assert not refusal or ("the disk is full" in refusal and "training can go on" in refusal)
        assert load(tmp_path)["version"] in (1, 2)
        assert not list(tmp_path.glob(".partial*")), "what was begun is cleared away"
        if calls <= at:
            break
    assert failed >= 1
    save(tmp_path, 3)
    assert load(tmp_path)["version"] == 3


SAVING = """
import sys
from pathlib import Path
from paceline import checkpoints
for version in range(10_000):
    with checkpoints.begun(Path(sys.argv[1])) as partial:
        for name in ("model", "state"):
            checkpoints.write(partial / name, b"%d" % version * 50_000)
        checkpoints.commit(partial, {"version": version}, keep=2)
"""


def test_kill_9_while_saving_leaves_a_whole_one(tmp_path: Path) -> None:
    """(test_killed.py does it 50 times with real tensors.)"""
    save(tmp_path, 0)
    for number in range(5):
        process = subprocess.Popen([sys.executable, "-c", SAVING, str(tmp_path)])
        before = checkpoints.newest(tmp_path)
        while checkpoints.newest(tmp_path) == before:
            time.sleep(0.002)
        time.sleep(0.003 * number)
        process.kill()
        process.wait()
        load(tmp_path)
    save(tmp_path, 1, keep=1)
    assert [path.name[:8] for path in tmp_path.iterdir()] == [checkpoints.newest(tmp_path).name[:8]]


def test_the_body_is_readable_json(tmp_path: Path) -> None:
    text = (save(tmp_path, 5) / "checkpoint.json").read_text()
    assert json.loads(text)["body"]["version"] == 5
