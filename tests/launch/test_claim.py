"""One command at a time writes into a directory, and never into one that is somebody else's."""

import os
import signal
import subprocess
import sys

import pytest

from paceline.errors import UsageError
from paceline.launch.claim import claimed

HOLD = """
import sys, time
from pathlib import Path
from paceline.launch.claim import claimed
with claimed(Path(sys.argv[1]), "advise"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_one_is_refused_and_the_first_named_until_it_ends_however_it_does(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "out")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        said = pytest.raises(UsageError, match=rf"\(process {holder.pid}\) is at work")
        with said, claimed(tmp_path / "out", "advise"):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with claimed(tmp_path / "out", "advise"):
            assert (tmp_path / "out" / "advise.lock").read_text() == f"{os.getpid()}\n"
    finally:
        holder.kill()
        holder.communicate()


def test_what_is_not_ours_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "report.html").write_text("mine")
    said = pytest.raises(UsageError, match="a new or empty directory, or one of 'paceline advise'")
    with said, claimed(tmp_path, "advise", sign="*/probe.json"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_ours_is_known_by_its_lock_or_by_a_sign(tmp_path):
    for _ in range(2):
        with claimed(tmp_path / "a", "compare"):
            pass
    (tmp_path / "b" / "probe").mkdir(parents=True)
    (tmp_path / "b" / "probe" / "probe.json").touch()
    with claimed(tmp_path / "b", "advise", sign="*/probe.json"):
        pass
