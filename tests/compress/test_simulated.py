"""Compressed gradients in simulations and emulations: their bytes, and what coding takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from compress.models import SHAPES, compression
from paceline.errors import UsageError
from paceline.payloads import push_bytes
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.network import Network
from paceline.strategies import parse_strategy
from paceline.worker.ways import Ways, ways_of

PARAMETERS = [(shape, 4) for shape in SHAPES]
CLUSTER = """
[workers]
count = 4
step_s = 0.1
seed = 1

[network]
size_bytes = 100e6
bytes_per_s = 125e6
"""


def network(tmp_path: Path, more: str = "") -> Network:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER + more)
    found = ClusterModel.load(file).network
    assert found is not None
    return found


def test_a_file_says_what_a_gradient_is_on_its_way(tmp_path: Path) -> None:
    dense = network(tmp_path)
    packed = network(tmp_path, "push_bytes = 2e6\ncoding_s = 0.05\n")
    assert dense.push_s(rank=0, number=0) == pytest.approx(0.8)
    assert packed.push_s(rank=0, number=0) == pytest.approx(0.016 + 0.05)
    assert packed.pull_s(rank=0, number=0) == pytest.approx(0.8)
    assert packed.push_times_s(workers=4, windows=2).tolist() == [[0.066] * 4] * 2
    assert packed.all_reduce_s(workers=4, number=0) == pytest.approx(1.5 * 0.016 + 0.05)
    gathered = network(tmp_path, "push_bytes = 2e6\ngathered = true\n")
    assert gathered.all_reduce_s(workers=4, number=0) == pytest.approx(3 * 0.016)
    served = network(tmp_path, "push_bytes = 2e6\nserver_bytes_per_s = 1e9\n")
    assert served.serving_s == pytest.approx(0.102)


def test_a_file_says_what_parameters_are_on_their_way(tmp_path: Path) -> None:
    packed = network(
        tmp_path, "push_bytes = 2e6\npull_bytes = 4e6\ncoding_s = 0.05\nserver_bytes_per_s = 1e9\n"
    )
    assert packed.pull_s(rank=0, number=0) == pytest.approx(0.032 + 0.05)
    assert packed.pull_times_s(workers=4, windows=2).tolist() == [[0.082] * 4] * 2
    assert packed.serving_s == pytest.approx(0.006)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gathered is of compressed gradients"):
        network(tmp_path, "gathered = true\n")
    with pytest.raises(UsageError, match="gathered='yes'"):
        network(tmp_path, "push_bytes = 2e6\ngathered = 'yes'\n")


@pytest.mark.parametrize(("strategy", "gathered"), [("ssp:3", 1.0), ("sync:allreduce", 3 / 1.5)])
def test_an_emulated_worker_has_less_on_its_way_once_it_is_warm(
    strategy: str, gathered: float, tmp_path: Path
) -> None:
    def ways(word: str | None) -> Ways:
        chosen = None if word is None else compression(word)
        return ways_of(
            network(tmp_path), parse_strategy(strategy), rank=0, workers=4, compression=chosen,
            parameters=PARAMETERS,
        )  # fmt: skip

    def push_s(word: str | None, number: int) -> float:
        return ways(word).push_s(number)

    word = "topk:0.05,warmup=10"
    method = compression(word).method
    share = push_bytes(method, PARAMETERS) / push_bytes(None, PARAMETERS)
    assert push_s(word, 0) == pytest.approx(push_s(None, 0))
    assert push_s(word, 10) == pytest.approx(push_s(None, 10) * share * gathered)
    pulls, whole = ways(f"{word},pull=topk:0.05"), ways(word)
    assert pulls.pull_s(0) == pytest.approx(whole.pull_s(0))
    assert pulls.pull_s(10) == pytest.approx(whole.pull_s(10) * share)
