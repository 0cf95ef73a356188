"""What a resumed run takes from the one before, and what the command line beats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline import checkpoints
from paceline.errors import UsageError
from paceline.launch.continuing import continued

SAID = {"strategy": "ssp:2", "precision": "bf16", "batch_norm": "freeze", "clip_norm": 1.0}
OPTIONS = dict.fromkeys(
    [*SAID, "workers", "seed", "threads", "lr_factor", "script", "args", "resume"]
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    body = {"world_size": 3, "threads": 2, "seed": 7, "lr_factor": 0.5, "overrides": SAID}
    with checkpoints.begun(tmp_path / "checkpoints") as partial:
        checkpoints.commit(partial, {**body, "version": 5}, keep=1)
    request = {"script": "train.py", "args": ["--lr", "0.1"]}
    (tmp_path / "run.json").write_text(json.dumps({"request": request}))
    return tmp_path


def test_all_is_as_it_was(run: Path) -> None:
    options = continued({**OPTIONS, "resume": run})
    assert {name: options[name] for name in SAID} == SAID
    assert (options["workers"], options["seed"], options["threads"]) == (3, 7, 2)
    assert options["lr_factor"] == 0.5
    assert (options["script"], options["args"]) == (Path("train.py"), ("--lr", "0.1"))


def test_the_command_line_beats_it(run: Path) -> None:
    said = {"precision": "fp32", "workers": 4, "lr_factor": 1.0, "script": Path("other.py")}
    options = continued({**OPTIONS, **said, "args": (), "resume": run})
    assert {name: options[name] for name in said} == said
    assert options["threads"] is None, "as many as fit for other workers"


def test_a_checkpoint_alone_does_not_say_the_script(run: Path) -> None:
    (run / "run.json").unlink()
    with pytest.raises(UsageError, match="Give SCRIPT"):
        continued({**OPTIONS, "resume": run})


def test_a_run_of_several_hosts_is_resumed_with_as_many_workers_in_all(run: Path) -> None:
    options = continued({**OPTIONS, "nnodes": 3, "resume": run})
    assert (options["workers"], options["threads"]) == (1, 2)
    with pytest.raises(UsageError, match=r"nnodes=2: .*a divisor of the 3 workers"):
        continued({**OPTIONS, "nnodes": 2, "resume": run})
    assert continued({**OPTIONS, "nnodes": 2, "workers": 2, "resume": run})["threads"] is None
