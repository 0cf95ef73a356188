"""From how many workers on a parameter server is the bottleneck, for 1, 2 and 4 shards.

Real runs of async against a real server whose capacity is emulated (``server_bytes_per_s``): on one
host the real one's depends on how many cores the workers leave it. The knee is where the line of few
workers, each as fast as it can, meets the plateau of many: N* = N X(many) / X(few).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from paceline.simulate.cluster import ClusterModel
from paceline.simulate.predict import Scenario, predict
from paceline.strategies import parse_strategy
from prediction.measured import measured, run
from prediction.rows import KNEE_LIMIT, Row

FEW = 2
MANY = {1: 6, 2: 8, 4: 12}
STEPS = 25
SHARDS = tuple(MANY)

TEXT = """
[workers]
count = {workers}
step_s = 0.1
jitter = 0.05

[network]
size_bytes = 1e7
server_bytes_per_s = 4e8  # a push keeps one shard busy for 50 ms
shards = {shards}
"""


def rows(directory: Path, say: Callable[[str], None]) -> Iterator[Row]:
    """Throughput with few and with many workers, and the knee, for each number of shards."""
    for shards in SHARDS:
        ours, real = {}, {}
        for workers in (FEW, MANY[shards]):
            say(f"server of {shards} shards, {workers} workers")
            text = TEXT.format(workers=workers, shards=shards)
            ours[workers] = predicted(text)
            real[workers] = throughput(text, directory / f"{shards}-{workers}", workers)
            yield Row(
                part="server", scene=f"{shards} shards, {workers} workers", strategy="async",
                figure="windows_per_s", predicted=ours[workers], measured=real[workers],
                limit=KNEE_LIMIT,
            )  # fmt: skip
        yield Row(
            part="server", scene=f"{shards} shards", strategy="async", figure="knee_workers",
            predicted=knee(ours), measured=knee(real), limit=KNEE_LIMIT,
        )  # fmt: skip


def predicted(text: str) -> float:
    """Windows a second, from the file alone."""
    cluster = ClusterModel.parse(text)
    scenario = Scenario(cluster=cluster, steps=STEPS, network=cluster.network)
    return predict(parse_strategy("async"), scenario)[0].windows_per_s


def throughput(text: str, directory: Path, workers: int) -> float:
    """Windows a second of a real run."""
    directory.mkdir(parents=True)
    file = directory / "cluster.toml"
    file.write_text(text)
    done = run(file, directory / "run", workers=workers, steps={"async": STEPS})
    return measured(done["async"]).windows_per_s


def knee(by_workers: dict[int, float]) -> float:
    """Workers from which on the server is the bottleneck."""
    few, many = min(by_workers), max(by_workers)
    return few * by_workers[many] / by_workers[few]
