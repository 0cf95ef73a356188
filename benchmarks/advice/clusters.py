"""Eight clusters of four workers, one of each kind of trouble, drawn from a seed; and what trains on them.

Rank 0, which looks at the held-out data, is never the one in trouble: it would look more seldom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from prediction.clusters import as_toml

WORKERS = 4
STEP_S = 0.04
TARGET = 0.5

Tables = dict[str, Any]
Random = np.random.Generator
PLAIN_MODEL = ("--lr", "0.1", "--momentum", "0.5")


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """A ``kind`` of trouble, its cluster file, and the script's arguments."""

    kind: str
    toml: str
    args: tuple[str, ...] = PLAIN_MODEL


def scenes(seed: int) -> Iterator[Scene]:
    """One of each kind."""
    random = np.random.default_rng(seed)
    for kind, (draw, args) in KINDS.items():
        tables = draw(random)
        workers = {
            "count": WORKERS,
            "step_s": STEP_S,
            "jitter": 0.03,
            "seed": int(random.integers(1000)),
        }
        yield Scene(kind=kind, toml=as_toml({"workers": workers}, tables), args=args)


def _uniform(random: Random) -> Tables:
    return {"workers": {"jitter": _between(random, 0.0, 0.03)}}


def _transient(random: Random) -> Tables:
    return {
        "hiccups": {
            "probability": _between(random, 0.08, 0.15),
            "factor": _between(random, 3.0, 5.0),
        }
    }


def _bursty(random: Random) -> Tables:
    bursts = [
        {
            "rank": int(rank), "start": int(random.integers(20 * number, 20 * number + 15)),
            "length": int(random.integers(10, 20)), "factor": _between(random, 3.0, 4.0),
        }
        for number in range(4)
        for rank in random.permutation(np.arange(1, WORKERS))[:1]
    ]  # fmt: skip
    return {"bursts": bursts}


def _persistent(random: Random) -> Tables:
    return {"stragglers": [{"rank": int(random.integers(1, WORKERS)), "factor": 4.0}]}


def _slow_link(random: Random) -> Tables:
    slow = {"rank": int(random.integers(1, WORKERS)), "bytes_per_s": _between(random, 2e7, 4e7)}
    network = {"size_bytes": 1e6, "bytes_per_s": 1e9, "delay_s": 0.0005}
    return {"network": network, "links": [slow]}


def _small_compute(random: Random) -> Tables:
    return {
        "workers": {"step_s": 0.015},
        "network": {
            "size_bytes": 1e6,
            "bytes_per_s": 1e8,
            "delay_s": _between(random, 0.015, 0.03),
        },
    }


def _memory_bound(random: Random) -> Tables:
    """Only small micro-batches fit, whose exchange costs about as much as their computing."""
    return {
        "workers": {"step_s": 0.025},
        "network": {"size_bytes": 1e6, "bytes_per_s": _between(random, 5e7, 1e8), "delay_s": 0.001},
    }


KINDS: Mapping[str, tuple[Callable[[Random], Tables], tuple[str, ...]]] = {
    "uniform": (_uniform, PLAIN_MODEL),
    "transient": (_transient, PLAIN_MODEL),
    "bursty": (_bursty, PLAIN_MODEL),
    "persistent x4": (_persistent, PLAIN_MODEL),
    "slow link": (_slow_link, PLAIN_MODEL),
    "small compute": (_small_compute, PLAIN_MODEL),
    "memory-bound": (_memory_bound, ("--lr", "0.03", "--momentum", "0.5", "--batch", "4")),
    "async diverges": (_transient, ("--lr", "0.2", "--momentum", "0.9")),
}


def _between(random: Random, low: float, high: float) -> float:
    return float(f"{random.uniform(low, high):.3g}")
