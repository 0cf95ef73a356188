"""Clusters drawn from a seed, each run for real under five strategies and predicted from its file alone.

Then the step times that the run recorded under sync are used to predict ssp:3 and async.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.runs import read_run
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.predict import Prediction, Scenario, predict
from paceline.simulate.recorded import recorded_times
from paceline.simulate.recorded_ways import recorded_ways
from paceline.strategies import parse_strategy
from prediction.clusters import WORKERS, Drawn, clusters
from prediction.measured import Measured, Steps, measured, run
from prediction.rows import Row

STRATEGIES = ("sync", "backup:1", "ssp:1", "ssp:3", "async")
FROM_SYNC = ("ssp:3", "async")
SPAN_S = 20.0
"""How long the runs of a cluster are to take together."""
RECORDED_LONGER = 2
"""The recorded run has so many times more steps than what is predicted from it: under other strategies
fast workers make more steps than under sync, and beyond what was recorded nobody knows."""

Say = Callable[[str], None]


def rows(seed: int, directory: Path, say: Say) -> Iterator[Row]:
    """Two figures for each cluster and strategy, and those from the recorded run."""
    for number, drawn in enumerate(clusters(seed)):
        say(f"cluster {number + 1} of 12: {drawn.kind}")
        trial = Trial.of(drawn, directory / f"cluster-{number}")
        by_word = trial.run(trial.words)
        for word in STRATEGIES:
            yield from trial.from_file(word, by_word[word])
        yield from trial.from_recorded(by_word)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One cluster, its file in ``directory``, ``steps`` windows of each worker."""

    kind: str
    directory: Path
    cluster: ClusterModel
    steps: int

    @staticmethod
    def of(drawn: Drawn, directory: Path) -> Trial:
        """Writes the file, and decides from it how many steps to look at."""
        directory.mkdir(parents=True)
        (directory / "cluster.toml").write_text(drawn.text)
        cluster = ClusterModel.parse(drawn.text)
        trial = Trial(kind=drawn.kind, directory=directory, cluster=cluster, steps=40)
        spans_s = [trial.predicted(word).time_s for word in trial.words]
        steps = round(trial.steps * SPAN_S / sum(spans_s))
        return replace(trial, steps=max(40, min(120, steps)))

    @property
    def words(self) -> list[str]:
        """The strategies, the one that is recorded first."""
        return list(dict.fromkeys([self.recorded_under, *STRATEGIES]))

    def steps_of(self, word: str) -> int:
        """How many steps there are to be under ``word``."""
        return self.steps * (RECORDED_LONGER if word == self.recorded_under else 1)

    def predicted(self, word: str) -> Prediction:
        """From the file alone."""
        scenario = Scenario(
            cluster=self.cluster, steps=self.steps_of(word), network=self.cluster.network
        )
        return predict(parse_strategy(word), scenario)[0]

    @property
    def recorded_under(self) -> str:
        """Of an all-reduce over links, which plain sync is there, nothing follows for a server's."""
        return "sync" if self.cluster.network is None else "sync:server"

    def run(self, words: Iterable[str], *, name: str = "run") -> dict[str, Steps]:
        """What was recorded under each strategy."""
        file = self.directory / "cluster.toml"
        steps = {word: self.steps_of(word) for word in words}
        return run(file, self.directory / name, workers=WORKERS, steps=steps)

    def from_file(self, word: str, steps: Steps) -> list[Row]:
        """Predicted against measured; measured once more if it is too far off, and said so."""
        predicted, once = self.predicted(word), measured(steps)
        found = self._rows("from the file", word, predicted, once)
        if all(row.ok for row in found):
            return found
        again = measured(self.run([word], name=f"again-{word.replace(':', '-')}")[word])
        note = f"measured twice; first {once.time_s:.2f} s, busy {once.busy:.1%}"
        return [
            replace(row, note=note) for row in self._rows("from the file", word, predicted, again)
        ]

    def from_recorded(self, by_word: dict[str, Steps]) -> Iterator[Row]:
        """What the steps recorded under sync, which was first, say of other strategies."""
        whole = read_run(self.directory / "run")
        own = zip(whole.ranks, by_word[self.recorded_under], strict=True)
        ranks = tuple(replace(rank, steps=tuple(steps)) for rank, steps in own)
        sync = replace(whole, ranks=ranks)
        times = recorded_times(sync)
        for word in FROM_SYNC:
            scenario = Scenario(cluster=times, steps=self.steps, network=recorded_ways(sync, times))
            predicted = predict(parse_strategy(word), scenario)[0]
            yield from self._rows("from sync's trace", word, predicted, measured(by_word[word]))

    def _rows(self, part: str, word: str, predicted: Prediction, seen: Measured) -> list[Row]:
        pairs = {
            "time_s": (predicted.time_s, seen.time_s),
            "busy": (predicted.busy, seen.busy),
        }
        return [
            Row(
                part=part, scene=self.kind, strategy=word, figure=figure,
                predicted=ours, measured=real,
            )
            for figure, (ours, real) in pairs.items()
        ]  # fmt: skip
