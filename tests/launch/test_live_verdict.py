"""A real run says who is slow while it goes on, once; with ``--quiet`` it does not."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import pytest

from paceline.launch import asides
from paceline.launch import run as launcher
from paceline.launch.request import RunRequest

SCRIPT = Path(__file__).parent / "training_script.py"
CLUSTER = """
[workers]
count = 2
step_s = 0.03
[[stragglers]]
rank = 1
factor = 3.0
"""


@pytest.mark.full
@pytest.mark.parametrize("quiet", [False, True])
def test_a_run_says_its_verdict_once_while_it_goes_on(tmp_path, monkeypatch, quiet):
    monkeypatch.setattr(asides, "MAX_SHARE", 1.0)
    monkeypatch.setattr(asides, "GROWTH", 1.0)
    monkeypatch.setattr(launcher, "LiveVerdict", partial(asides.LiveVerdict, every_s=2.0))
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    said = io.StringIO()
    request = RunRequest(
        script=SCRIPT, args=(str(tmp_path), "--epochs", "25"), workers=2, strategy="sync:server",
        emulate=cluster, out=tmp_path / "run", quiet=quiet,
    )  # fmt: skip
    result = launcher.run(request, stdout=io.StringIO(), stderr=said)
    assert result.exit_code == 0, said.getvalue()
    told = [line for line in said.getvalue().splitlines() if "says more" in line]
    assert len(told) == (0 if quiet else 1), said.getvalue()
    assert all("paceline: Rank 1 is slow in forward (persistent)" in line for line in told)
