"""Keys: made private, refused when they are not, needed where others can reach the server."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from paceline.errors import UsageError
from paceline.transport.keys import addresses_of, key_for, make_key, read_key


def test_a_key_is_private_random_and_never_overwritten(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    before = os.umask(0)
    try:
        make_key(one)
        make_key(other)
    finally:
        os.umask(before)
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert len(read_key(one)) == 32
    assert read_key(one) != read_key(other)
    with pytest.raises(UsageError, match="never overwritten"):
        make_key(one)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_can_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    make_key(path)
    path.chmod(mode)
    with pytest.raises(UsageError, match=f"can be read by others .mode {mode:04o}"):
        read_key(path)


@pytest.mark.parametrize("text", ["", "secret", "ab" * 31, "ab" * 33, "zz" * 32, "é" * 64])
def test_a_file_that_holds_no_key_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="64 hex digits") as refused:
        read_key(path)
    assert not text or text not in str(refused.value)


def test_a_directory_or_a_pipe_is_no_key_and_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UsageError, match="a key's file"):
            read_key(path)


def test_no_file_is_said_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No such file.*paceline key FILE"):
        read_key(tmp_path / "key")


def test_only_loopback_goes_without_a_key(tmp_path: Path) -> None:
    assert key_for("localhost", None, lambda _: ["127.0.0.1", "::1"]) == b""
    for found in (["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["0.0.0.0"], ["::"]):
        with pytest.raises(UsageError, match=r"from other machines.*paceline key FILE.*--key FILE"):
            key_for("host0", None, lambda _, found=found: found)
    make_key(tmp_path / "key")
    assert len(key_for("host0", tmp_path / "key", lambda _: ["10.0.0.1"])) == 32
    assert addresses_of("127.0.0.1") == ["127.0.0.1"]
    with pytest.raises(UsageError, match="no-such-host"):
        addresses_of("no-such-host.invalid.")
