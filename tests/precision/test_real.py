"""Real processes, gloo's sums and a real server: every rank ends with the same bits, having learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.runs import run_script

pytestmark = [pytest.mark.full, pytest.mark.timeout(200)]


@pytest.mark.parametrize("words", [
    {"strategy": "sync:server", "parameters": "bfloat16"},
    {"strategy": "sync:allreduce", "parameters": "float16", "reduce_dtype": "fp16"},
    {"strategy": "sync:allreduce", "precision": "fp16", "reduce_dtype": "bf16"},
    {"strategy": "async", "parameters": "float16"},
    {"strategy": "backup:1", "precision": "fp16", "accumulate_dtype": "bf16"},
])  # fmt: skip
@pytest.mark.parametrize("workers", [2, 3])
def test_ranks_end_alike(words: dict[str, Any], workers: int) -> None:
    script = Path(__file__).parent / "script.py"
    run = run_script(script, [json.dumps(words)], workers=workers, timeout_s=150)
    assert run.exit_code == 0, run.stderr
    said = [json.loads(run.lines(rank)[0]) for rank in range(workers)]
    assert len({(one["digest"], one["loss"]) for one in said}) == 1
    if words["strategy"].startswith("sync"):
        assert len(said[0]["norms"]) > 30
        for one in said[1:]:  # it may have had no batch in a pass's last update
            assert one["norms"].items() <= said[0]["norms"].items()
    assert said[0]["loss"] < 0.2
    assert said[0]["type"] == "torch." + words.get("parameters", "float32")
    assert said[0]["state"] == ["torch.float32"], (
        "the optimizer keeps float32 for 16-bit parameters"
    )
