"""In four network namespaces with token-bucket filters: the slow port is named. Needs root and iproute2."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "benchmarks" / "measure.py"


@pytest.mark.full
@pytest.mark.timed
@pytest.mark.timeout(400)
@pytest.mark.parametrize("scene", [1, 2, 3, 4])
def test_what_was_configured_is_what_is_measured(scene):
    done = subprocess.run(
        [sys.executable, str(BENCH), "--only", str(scene)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 3:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
