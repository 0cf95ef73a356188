"""A script under ``paceline run`` sees what it would see under ``python script.py``, and a seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.launch.bootstrap import decode_launch, encode_launch
from paceline.launch.context import Launch
from support.leaks import assert_nothing_is_left
from support.runs import run_script

SCRIPT = """
import inspect, json, os, pickle, random, sys
import multiprocessing
import numpy, torch
import neighbour

class Box:
    pass

def double(x):
    return 2 * x

class Doubled(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return double(i)

if __name__ == "__main__":
    drawn = [random.random(), numpy.random.rand(), torch.rand(1).item()]
    loaders = [
        torch.utils.data.DataLoader(Doubled(), batch_size=2, num_workers=1,
                                    multiprocessing_context=method)
        for method in ("fork", "spawn")
    ]
    seen = {
        "argv": sys.argv, "path": sys.path[0], "file": __file__, "name": __name__,
        "main": sys.modules["__main__"].Box is Box,
        "pickled": isinstance(pickle.loads(pickle.dumps(Box())), Box),
        "source": inspect.getsource(double),
        "annotations": str(compile("x: int", "", "exec").co_flags),
        "loaders": [[batch.tolist() for batch in loader] for loader in loaders],
        "extra": sorted(k for k in globals() if k.startswith("_") and k != "__annotations__"),
    }
    facts = [os.environ["RANK"], os.environ["WORLD_SIZE"], torch.get_num_threads(), drawn]
    print(json.dumps(seen))
    print(json.dumps(facts))
    print("unfinished line", end="")
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[list[str], list[str]]:
    """What the script prints under python and under ``paceline run`` with a seed of 3."""
    home = tmp_path_factory.mktemp("home")
    script = home / "script.py"
    script.write_text(SCRIPT)
    (home / "neighbour.py").write_text("")
    plain = subprocess.run(
        [sys.executable, str(script), "--name", "run-3", "--help"],
        env={**os.environ, "RANK": "", "WORLD_SIZE": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    run = run_script(script, ["--name", "run-{seed}", "--help"], workers=1, seed=3, threads=1)
    assert run.exit_code == 0, run.stderr
    assert_nothing_is_left(run)
    return plain.stdout.splitlines(), run.lines(0)


def test_the_script_sees_what_python_would_show_it(both):
    plain, ours = both
    assert json.loads(ours[0]) == json.loads(plain[0])


def test_an_unfinished_last_line_arrives(both):
    assert both[1][-1] == "unfinished line"


def test_randomness_is_seeded_and_threads_are_limited(both):
    import random

    import numpy as np
    import torch

    rank, world_size, threads, drawn = json.loads(both[1][1])
    assert (rank, world_size, threads) == ("0", "1", 1)
    random_, numpy_, torch_ = random.Random(3), np.random.RandomState(3), torch.Generator()
    torch_.manual_seed(3)
    expected = [random_.random(), numpy_.rand(), torch.rand(1, generator=torch_).item()]
    assert drawn == expected


def test_a_launch_survives_the_command_line():
    launch = Launch(
        rank=2,
        world_size=4,
        local_rank=2,
        server="/tmp/x/server",
        out=Path("/tmp/out put"),
        overrides={"strategy": "ssp:3", "clip_norm": 1.0, "accumulate": 4},
        lr_factor=0.1,
        emulate=Path("cluster.toml"),
        seed=7,
        launcher_pid=123,
    )
    assert decode_launch(encode_launch(launch)) == launch
    assert decode_launch(encode_launch(Launch())) == Launch()


@pytest.mark.parametrize(
    ("script", "exit_code", "said", "not_said"),
    [
        ("def f():\n    1 / 0\nf()\n", 1, ["line 2, in f", "ZeroDivisionError"], ["bootstrap.py"]),
        ("def f(:\n", 1, ["SyntaxError", "script.py"], ["bootstrap.py"]),
        ("import sys; sys.exit('no data')", 1, ["no data"], ["Traceback"]),
        ("import sys; sys.exit(5)", 1, ["exit code 5"], ["Traceback"]),
        ("import sys; sys.exit()", 0, ["finished"], ["Traceback"]),
        (
            "from paceline.errors import PeerLostError\nraise PeerLostError('rank 2 is gone')",
            3,
            ["[0] stopped: rank 2 is gone"],
            ["Traceback"],
        ),
        ("import os; os.kill(os.getpid(), 11)", 3, ["rank 0 was killed by SIGSEGV"], []),
    ],
)
def test_how_a_script_ends_is_how_its_run_ends(script, exit_code, said, not_said):
    run = run_script(script, workers=1)
    assert run.exit_code == exit_code, run.stderr
    assert all(text in run.stderr for text in said), run.stderr
    assert not any(text in run.stderr for text in not_said), run.stderr
    assert run.summary["exit_code"] == exit_code
