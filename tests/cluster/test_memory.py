"""Accumulation buys memory: eight micro-batches of 128 need less than one batch of 1,024."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.runs import run_script

SCRIPT = Path(__file__).parent / "memory_script.py"
pytestmark = pytest.mark.timeout(150)


def peak_bytes(batch: int, accumulate: int, workers: int) -> int:
    run = run_script(SCRIPT, [str(batch), str(accumulate)], workers=workers, strategy="sync")
    assert run.exit_code == 0, run.stderr[-3000:]
    return max(int(found) for found in re.findall(r"peak (\d+)", run.stdout))


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.full)])
def test_accumulation_needs_less_memory_than_the_large_batch(workers: int) -> None:
    small, large = peak_bytes(128, 8, workers), peak_bytes(1024, 1, workers)
    assert small < 0.8 * large, f"{small / 2**20:.0f} MiB against {large / 2**20:.0f} MiB"
