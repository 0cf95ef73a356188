"""The server plane beside all-reduce: what is read from the trace, and from which size on which is faster."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.measure.planes import WARM_UP, exchanges, which_is_faster
from paceline.measure.sentences import judge
from paceline.measure.sweep import SIZES_BYTES, Timing
from paceline.measure.text import as_json, render
from paceline.runs import RankTrace, Run
from synthetic_runs import setup, step

from .fabricated import measured_group


def timed(name, *seconds):
    return [
        Timing(algorithm=name, size_bytes=size, seconds=one)
        for size, one in zip(SIZES_BYTES, seconds, strict=True)
    ]


def rank_of(rank, exchange_s):
    """A trace of two Workers, of 1 kB and of 1 MB, whose exchanges take so long and ten times that."""
    setups, steps = [], []
    for number, size in enumerate((1_000, 1_000_000)):
        setups.append(setup(time_s=100.0 * number, parameter_bytes=size))
        for k in range(WARM_UP + 6):
            took_s = 9.0 if k < WARM_UP else exchange_s * 10**number
            at_s = 100.0 * number + 1.0 + k
            steps.append(step(time_s=at_s, clock=k, pull_s=0.001, wait_s=5.0, exchange_s=took_s))
    return RankTrace(
        rank=rank, setup=setups[0], setups=tuple(setups), steps=tuple(steps), passes=(), metrics=(),
        notes=(), close=None,
    )  # fmt: skip


def test_the_slowest_ranks_exchange_counts_without_waiting_and_warm_up():
    ranks = (rank_of(0, 0.002), rank_of(1, 0.003))
    run = Run(directory=Path("made"), ranks=ranks, decisions=(), server_notes=(), summary={})
    found = exchanges(run)
    assert [(one.algorithm, one.size_bytes) for one in found] == [
        ("server", 1_000), ("server", 1_000_000),
    ]  # fmt: skip
    assert [one.seconds for one in found] == [pytest.approx(0.004), pytest.approx(0.031)]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ((2, 2, 2, 2), "at all sizes sync:allreduce (1.00 s against 2.00 s at 8.00 MB)"),
        ((0.5, 0.5, 0.5, 0.5), "at all sizes sync:server (500 ms against 1.00 s at 8.00 MB)"),
        ((2, 2, 0.5, 0.5), "up to 32.0 kB sync:allreduce (1.00 s against 2.00 s at 32.0 kB), "
                           "from 1.00 MB on sync:server (500 ms against 1.00 s at 8.00 MB)"),
        ((0.5, 2, 2, 0.5), "up to 1.00 kB sync:server (500 ms against 1.00 s at 1.00 kB), "
                           "from 32.0 kB to 1.00 MB sync:allreduce (1.00 s against 2.00 s at 1.00 MB), "
                           "from 8.00 MB on sync:server (500 ms against 1.00 s at 8.00 MB)"),
    ],
)  # fmt: skip
def test_from_which_size_on_which_plane_is_faster(server, said):
    found = which_is_faster([*timed("gloo", 1, 1, 1, 1), *timed("server", *server)])
    assert found == f"The faster plane on this host: {said}."


def test_nothing_is_said_where_only_one_plane_was_timed():
    assert which_is_faster(timed("gloo", 1, 1, 1, 1)) == ""


def test_the_terminal_and_the_json_have_both_planes():
    measured = replace(
        measured_group(rates=[125e6] * 4), timings=tuple(timed("gloo", 1, 1, 1, 1)),
        server=tuple(timed("server", 2, 2, 2, 2)),
    )  # fmt: skip
    judged = judge(measured)
    assert "server plane, push to pull" in render(measured, judged, None, "cluster.toml")
    assert "at all sizes sync:allreduce" in render(measured, judged, None, "cluster.toml")
    document = json.loads(as_json(measured, judged, None, "cluster.toml"))
    assert [one["seconds"] for one in document["server_plane"]] == [2, 2, 2, 2]
    assert "sync:allreduce" in document["faster_plane"]


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_real_server_plane_is_timed_beside_the_all_reduces(tmp_path):
    words = [
        "measure",
        "-n",
        "2",
        "--algorithms",
        "gloo,server",
        "--json",
        "--out",
        str(tmp_path / "c.toml"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "paceline.cli", *words], capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    document = json.loads(done.stdout)
    assert [one["size_bytes"] for one in document["server_plane"]] == list(SIZES_BYTES)
    assert all(0 < one["seconds"] < 5 for one in document["server_plane"])
    assert document["faster_plane"].startswith("The faster plane on this host")
    assert {one["algorithm"] for one in document["all_reduce"]} == {"gloo"}
