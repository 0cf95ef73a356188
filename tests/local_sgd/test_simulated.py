"""What a simulation says of local SGD: its recurrence against a loop over workers, and against a run."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest

from paceline.runs import read_run
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.predict import Scenario, predict
from paceline.simulate.recurrence import bounded, in_rounds
from paceline.strategies import parse_strategy
from support.runs import run_script

CLUSTER = """
[workers]
count = 3
step_s = 1.0
jitter = 0.3
seed = 3
[network]
size_bytes = 1e6
bytes_per_s = 1e6
delay_s = 0.01
jitter_s = 0.02
"""
SCRIPT = """
import torch, paceline
model = torch.nn.Linear(2, 1)
worker = paceline.Worker(model, torch.optim.SGD(model.parameters(), lr=0.01))
for (x,) in worker.batches([(torch.ones(2, 2),)] * 33):
    worker.step(worker(x).sum())
worker.close()
"""


def drawn(steps: int = 23, workers: int = 4) -> np.ndarray:
    return np.random.default_rng(1).exponential(size=(steps, workers)) + 0.5


def naive(window_s: np.ndarray, windows: int, exchange_s: float) -> list[float]:
    """When each worker is done, by a loop that anybody would write."""
    steps, workers = window_s.shape
    now = [0.0] * workers
    for first in range(0, steps, windows):
        for worker in range(workers):
            now[worker] += window_s[first : first + windows, worker].sum()
        now = [max(now) + exchange_s] * workers
    return now


@pytest.mark.parametrize("windows", [1, 4, 23, 50])
def test_rounds_of_several_windows_against_a_loop(windows: int) -> None:
    times = in_rounds(drawn(), windows, 0.25)
    assert times.decided_s[-1].tolist() == pytest.approx(naive(drawn(), windows, 0.25), rel=1e-12)


def test_one_window_a_round_is_sync_and_none_is_nobody_waiting() -> None:
    window_s = drawn()
    sync = bounded(window_s, 0, push_s=0.25)
    assert in_rounds(window_s, 1, 0.25).decided_s[-1].max() == pytest.approx(
        sync.decided_s[-1].max()
    )
    alone = in_rounds(window_s, inf, 0.25)
    assert alone.decided_s[-1].tolist() == pytest.approx(window_s.sum(axis=0).tolist())


def test_rarer_exchanges_take_less_of_the_time(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER)
    model = ClusterModel.load(file)
    scenario = Scenario(cluster=model, steps=400, network=model.network)
    words = ("sync:allreduce", "local:1", "local:8", "diloco:50", "local:inf")
    found = [predict(parse_strategy(word), scenario)[0] for word in words]
    assert found[0].time_s == found[1].time_s
    assert [one.time_s for one in found[1:]] == sorted(
        (one.time_s for one in found[1:]), reverse=True
    )
    assert found[-1].busy > 0.98


def test_fragments_take_their_part_of_an_exchange_and_the_last_one_all(tmp_path: Path) -> None:
    """Three workers, a ring: 2 (3 - 1) hops, and 4/3 of a second for the whole megabyte."""
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER.replace("jitter_s = 0.02", ""))
    model = ClusterModel.load(file)
    scenario = Scenario(cluster=model, steps=14, network=model.network)
    window_s = model.step_times_s(14).T
    now = 0.0
    for first in range(0, 14, 4):
        moved_s = 4 / 3 / (3 if first < 12 else 1)
        now += window_s[first : first + 4].sum(axis=0).max() + 4 * 0.01 + moved_s
    found, _ = predict(parse_strategy("diloco:12:0.7:0.9:3"), scenario)
    assert found.time_s == pytest.approx(now, rel=1e-12)


def test_parameters_are_as_large_as_they_are_whatever_gradients_are_packed_to(
    tmp_path: Path,
) -> None:
    file = tmp_path / "cluster.toml"
    times = []
    for packed in ("", "push_bytes = 1e4\n"):
        file.write_text(CLUSTER + packed)
        model = ClusterModel.load(file)
        scenario = Scenario(cluster=model, steps=20, network=model.network)
        times.append(predict(parse_strategy("local:4"), scenario)[0].time_s)
    assert times[0] == times[1]


@pytest.mark.full
@pytest.mark.parametrize("word", ["local:4", "diloco:4:0.7:0.9:2", "diloco:3:0.7:0.9:3"])
def test_a_run_in_virtual_time_takes_what_was_predicted(tmp_path: Path, word: str) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER)
    model = ClusterModel.load(file)
    predicted, _ = predict(
        parse_strategy(word), Scenario(cluster=model, steps=11, network=model.network)
    )
    run = run_script(SCRIPT, workers=3, virtual=file, strategy=word)
    assert run.exit_code == 0, run.stderr
    record = read_run(run.out)
    assert [one.close.time_s for one in record.ranks if one.close is not None] == [
        pytest.approx(predicted.time_s, rel=1e-6)
    ] * 3
