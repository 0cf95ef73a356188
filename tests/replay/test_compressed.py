"""A compressed run is replayed bit for bit: residuals, warm-up and, where it was emulated, its pulls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replay.test_replay_runs import assert_equal, replay
from support.runs import run_script

SCRIPT = Path(__file__).parent / "compressed_script.py"
CLUSTER = "[workers]\ncount = 2\nstep_s = 0.01\n\n[network]\nsize_bytes = 1e6\nbytes_per_s = 1e8\n"
PULLS = "topk:0.05,warmup=4,pull=topk:0.05"
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def recorded(strategy: str, word: str, **options: Any) -> Path:
    done = run_script(SCRIPT, strategy=strategy, compress=word, workers=2, timeout_s=400, **options)
    assert done.exit_code == 0, done.stderr[-3000:]
    return done.out


@pytest.mark.parametrize(
    ("strategy", "word"),
    [
        ("async", "topk:0.05,warmup=4"), ("ssp:1", "sign"), ("sync:server", "powersgd:2,warmup=2"),
        ("sync:allreduce", "topk:0.05,warmup=4"), ("sync:allreduce", "powersgd:2,warmup=2"),
        ("async", PULLS),  # on one host they are whole
    ],
)  # fmt: skip
def test_a_real_run(strategy: str, word: str) -> None:
    run = recorded(strategy, word)
    assert_equal(run, replay(run))


@pytest.mark.parametrize("how", ["virtual", "emulate"])
@pytest.mark.parametrize("strategy", ["async", "sync:server"])
def test_pulls_of_an_emulated_cluster(strategy: str, how: str, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    run = recorded(strategy, PULLS, **{how: cluster})
    assert_equal(run, replay(run))
