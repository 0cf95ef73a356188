"""The scenarios that one call of ``paceline simulate`` compares: sizes, patterns and shards crossed.

SSP's answer depends on whether it is always the same workers that are late, which few people know of
their cluster: if nobody says, all patterns are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.errors import UsageError, bad_value
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.late import every_of
from paceline.simulate.predict import Scenario

PATTERNS = ("same", "every:50", "random")
MOST_WORKER_STEPS = 10**8


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """A scenario, and what tells it from the others of the same call."""

    scenario: Scenario
    pattern: str = ""

    @property
    def workers(self) -> int:
        return self.scenario.cluster.count

    @property
    def shards(self) -> int:
        network = self.scenario.network
        return 1 if network is None else network.shards


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What the command line says of the cluster. Times in seconds; texts as they were typed."""

    workers: Sequence[int]
    step_s: float
    jitter: float = 0.0
    late: str = ""
    pattern: str = ""
    hiccups: str = ""
    seed: int = 0


def model_of(wish: Wish) -> ClusterModel:
    """The cluster that the command line describes, with the first number of workers."""
    document: dict[str, Any] = {
        "workers": {
            "count": wish.workers[0], "step_s": wish.step_s, "jitter": wish.jitter, "seed": wish.seed,
        }
    }  # fmt: skip
    if wish.hiccups:
        chance, factor = _pair("hiccups", wish.hiccups, "0.05x3")
        document["hiccups"] = {"probability": chance, "factor": factor}
    if wish.late:
        number, added_s = _pair("late", wish.late, "2x3.0")
        whole = int(number) if number.is_integer() else number
        pattern = wish.pattern or "random"
        document["late"] = {"count": whole, "added_s": added_s, "pattern": pattern}
    return ClusterModel.of(document, source="the command line")


def scenes_of(
    model: ClusterModel,
    *,
    steps: int,
    accumulate: int,
    workers: Sequence[int] = (),
    shards: Sequence[int] = (),
    pattern: str = "",
    group_size: int | None = None,
) -> Iterator[Scene]:
    """``model`` with each number of workers, each number of shards and, if it has late workers
    and ``pattern`` is "", each pattern. Groups, if any, are nodes unless ``group_size`` is given.
    Raises UsageError for what does not fit."""
    if shards and model.network is None:
        raise UsageError("--shards needs a [network] with server_bytes_per_s in the cluster file.")
    for count in workers or (model.count,):
        for number in shards or (None,):
            check_size(count, steps, accumulate)
            for word in _patterns(model, pattern):
                cluster = _with(model, count, word)
                network = model.network
                if network is not None and number is not None:
                    network = replace(network, shards=number)
                scenario = Scenario(
                    cluster=cluster,
                    steps=steps,
                    accumulate=accumulate,
                    network=network,
                    group_size=group_size or _node(model),
                )
                yield Scene(scenario=scenario, pattern=word)


def _node(model: ClusterModel) -> int | None:
    """How many workers a node has, where the file says that it has more than one."""
    size = 1 if model.network is None else model.network.links.per_node
    return size if size > 1 else None


def check_size(workers: int, steps: int, accumulate: int) -> None:
    """Raises UsageError for more than memory holds: some 100 bytes a worker-step."""
    size = workers * steps * accumulate
    if size > MOST_WORKER_STEPS:
        raise UsageError(
            f"{workers:,} workers x {steps:,} steps x accumulate {accumulate:,} would need "
            f"{size * 100 / 1e9:,.0f} GB of memory. Give fewer --steps: a few hundred show what is to be seen."
        )


def _patterns(model: ClusterModel, pattern: str) -> Sequence[str]:
    if model.late is None:
        return ("",)
    return (pattern,) if pattern else PATTERNS


def _with(model: ClusterModel, count: int, pattern: str) -> ClusterModel:
    named = [one.rank for one in model.stragglers] + [one.rank for one in model.bursts]
    linked = -1 if model.network is None else model.network.links.highest_rank
    highest = max([*named, linked])
    if highest >= count:
        raise bad_value("workers", count, f"more than {highest}, a rank that the file names")
    late = model.late
    if late is not None:
        if late.count > count:
            raise bad_value("workers", count, f"at least the {late.count} that are late")
        late = replace(late, every=every_of(pattern))
    return replace(model, count=count, late=late)


def _pair(field: str, text: str, example: str) -> tuple[float, float]:
    first, _, second = text.partition("x")
    try:
        return float(first), float(second)
    except ValueError:
        raise bad_value(field, text, f"two numbers with an x between, as in {example}") from None
