"""Real processes and gloo: every compression on both planes, three ranks that agree on every bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.leaks import assert_nothing_is_left
from support.runs import run_script

WORDS = (
    "topk:0.05,warmup=4", "randomk:0.25,warmup=0", "powersgd:2,warmup=2", "int8", "sign",
    "topk:0.05,feedback=off",
)  # fmt: skip
STRATEGIES = ("sync:allreduce", "sync:server", "ssp:1")


@pytest.mark.full
@pytest.mark.timeout(300)
def test_ranks_agree_and_losses_fall(tmp_path: Path) -> None:
    script = Path(__file__).parent / "real_script.py"
    arguments = [str(tmp_path), " ".join(STRATEGIES), " ".join(WORDS)]
    run = run_script(script, arguments, workers=3, timeout_s=280)
    assert run.exit_code == 0, run.stderr[-3000:]
    assert_nothing_is_left(run)
    assert run.stderr.count("feedback=off: what compression withholds") == len(STRATEGIES)
    assert run.stderr.count("the warm-up was not over") == len(STRATEGIES)  # feedback=off's
    assert run.stderr.count("it does not pay here: on one host") == 2 * (len(WORDS) - 1)
    for rank in range(3):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        for cell, losses in found.items():
            assert sum(losses[-4:]) < 0.85 * sum(losses[:4]), cell
