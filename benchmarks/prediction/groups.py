"""Clusters drawn from a seed whose workers push in groups of two: real runs, predicted from the file alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from paceline.simulate.cluster import ClusterModel
from paceline.simulate.predict import Scenario, predict
from paceline.strategies import parse_strategy
from prediction.clusters import KINDS, WORKERS, clusters
from prediction.measured import measured, run
from prediction.rows import Row

STRATEGIES = ("hybrid:async", "hybrid:ssp:3")
GROUP_SIZE, STEPS = 2, 60


def rows(seed: int, directory: Path, say: Callable[[str], None]) -> Iterator[Row]:
    """Two figures for one cluster of each kind and each strategy."""
    directory.mkdir(parents=True)
    for number, drawn in enumerate(islice(clusters(seed), len(KINDS))):
        say(f"groups {number + 1} of {len(KINDS)}: {drawn.kind}")
        file = directory / f"{number}.toml"
        file.write_text(drawn.text)
        cluster = ClusterModel.parse(drawn.text)
        for word in STRATEGIES:
            seen = measured(
                run(
                    file, directory / f"{number}-{word.replace(':', '-')}", workers=WORKERS,
                    steps={word: STEPS}, words=["--group-size", str(GROUP_SIZE)],
                )[word]
            )  # fmt: skip
            scenario = Scenario(
                cluster=cluster, steps=STEPS, network=cluster.network, group_size=GROUP_SIZE
            )
            predicted, _ = predict(parse_strategy(word), scenario)
            for figure in ("time_s", "busy"):
                yield Row(
                    part="groups", scene=drawn.kind, strategy=word, figure=figure,
                    predicted=getattr(predicted, figure), measured=getattr(seen, figure),
                )  # fmt: skip
