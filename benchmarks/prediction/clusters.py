"""Clusters of four workers, drawn from a seed: each kind of trouble twice.

Troubles are mild (a factor of four at most) and bursts are over before a run ends: to whom the last
windows fall is a matter of microseconds, and a run would be as long as chance makes its last step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

WORKERS = 4
STEP_S = 0.05
BURSTS_END = 36
"""Bursts are over after so many of a worker's steps."""

Tables = dict[str, Any]
Random = np.random.Generator


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """A cluster file's ``text``, and what ``kind`` of trouble is in it."""

    kind: str
    text: str


def clusters(seed: int) -> Iterator[Drawn]:
    """Two of each kind."""
    random = np.random.default_rng(seed)
    for number in range(2):
        for kind, draw in KINDS.items():
            workers = {"count": WORKERS, "step_s": STEP_S, "seed": int(random.integers(1000))}
            text = as_toml({"workers": workers}, draw(random))
            yield Drawn(kind=f"{kind} {number + 1}", text=text)


def _transient(random: Random) -> Tables:
    return {
        "workers": {"jitter": _between(random, 0.0, 0.1)},
        "hiccups": {
            "probability": _between(random, 0.03, 0.15), "factor": _between(random, 2.0, 4.0),
        },
    }  # fmt: skip


def _bursty(random: Random) -> Tables:
    return {"workers": {"jitter": _between(random, 0.0, 0.1)}, "bursts": _bursts(random, 3)}


def _persistent(random: Random) -> Tables:
    return {"workers": {"jitter": _between(random, 0.0, 0.1)}, "stragglers": _straggler(random)}


def _jitter(random: Random) -> Tables:
    return {"workers": {"jitter": _between(random, 0.1, 0.6)}}


def _links(random: Random) -> Tables:
    slow = {"rank": _rank(random), "delay_s": _between(random, 0.01, 0.04)}
    return {"workers": {"jitter": _between(random, 0.0, 0.1)}, **_network(random), "links": [slow]}


def _mixed(random: Random) -> Tables:
    trouble = _straggler(random) if random.random() < 0.5 else []
    return {
        **_transient(random), **_network(random), "stragglers": trouble, "bursts": _bursts(random, 1),
        "late": {"count": 1, "added_s": _between(random, 0.01, 0.04), "pattern": "every:10"},
    }  # fmt: skip


KINDS: Mapping[str, Callable[[Random], Tables]] = {
    "transient": _transient,
    "bursty": _bursty,
    "persistent": _persistent,
    "jitter": _jitter,
    "link delay": _links,
    "mixed": _mixed,
}


def _network(random: Random) -> Tables:
    return {
        "network": {
            "size_bytes": 1e6, "bytes_per_s": _between(random, 1e8, 1e9),
            "delay_s": _between(random, 0.0005, 0.004), "jitter_s": _between(random, 0.0, 0.002),
        }
    }  # fmt: skip


def _straggler(random: Random) -> list[Tables]:
    return [{"rank": _rank(random), "factor": _between(random, 1.3, 2.5)}]


def _bursts(random: Random, number: int) -> list[Tables]:
    return [
        {
            "rank": int(rank), "start": int(random.integers(BURSTS_END // 2)),
            "length": int(random.integers(5, BURSTS_END // 2)), "factor": _between(random, 2.0, 4.0),
        }
        for rank in random.permutation(WORKERS)[:number]
    ]  # fmt: skip


def _rank(random: Random) -> int:
    return int(random.integers(WORKERS))


def _between(random: Random, low: float, high: float) -> float:
    return float(f"{random.uniform(low, high):.3g}")


def as_toml(*parts: Tables) -> str:
    """``parts`` one over the other, as a cluster file."""
    tables: Tables = {}
    for part in parts:
        for name, value in part.items():
            known = tables.get(name)
            tables[name] = {**known, **value} if isinstance(known, dict) else value
    return "\n".join(_section(name, value) for name, value in tables.items())


def _section(name: str, value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(_table(f"[[{name}]]", one) for one in value)
    return _table(f"[{name}]", value)


def _table(head: str, values: Tables) -> str:
    return "\n".join([head, *(f"{key} = {_literal(value)}" for key, value in values.items()), ""])


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
