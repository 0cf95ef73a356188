"""The suite's own machinery: what it relies on, and would not notice the loss of."""

from __future__ import annotations

import subprocess
import sys

TWO_GROUPS = """
import os, pytest
from pathlib import Path

GROUPS = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in ("one", "other")]

@pytest.fixture(scope="module", params=GROUPS)
def dear(request):
    with Path(__file__).with_name("built").open("a") as file:
        file.write(request.param + "\\n")

@pytest.mark.parametrize("number", range(6))
def test_something(dear, number):
    pass
"""


def test_a_group_of_tests_builds_its_fixture_once(tmp_path):
    (tmp_path / "test_groups.py").write_text(TWO_GROUPS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ["-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert sorted((tmp_path / "built").read_text().split()) == ["one", "other"]
