"""What an exchange crosses: each worker's link, and the server. Only says how long that takes.

``paceline simulate``, virtual time and ``--emulate`` all ask here. ``size_bytes`` is what the file
says, also where a smaller model stands for the one that is meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from paceline.cost import ALL_REDUCES, Hop, hierarchical, ring_gather, serving
from paceline.errors import UsageError
from paceline.simulate.draws import Floats
from paceline.simulate.links import KEYS, Links, links_from
from paceline.simulate.tables import Table
from paceline.strategies import Strategy, Sync

HIERARCHICAL = "hierarchical"
INSTANT = Hop(bytes_per_s=inf, latency_s=0.0)
ALGORITHMS = (*ALL_REDUCES, HIERARCHICAL)
_PACKING = ("push_bytes", "gathered", "coding_s", "pull_bytes")


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """Of compressed gradients: ``push_bytes`` of each; ``gathered``: they cannot be summed on their way, so
    that all ranks gather them; ``coding_s``: what encoding and decoding add to each. ``pull_bytes``: of
    parameters that a server sends as differences, with the same ``coding_s``; None: they are whole."""

    push_bytes: float
    gathered: bool = False
    coding_s: float = 0.0
    pull_bytes: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """``size_bytes``: the parameters', and a gradient's unless there is a ``packing``.
    ``algorithm``: of the all-reduce; ``inside``: a hop within a node, where it is hierarchical.
    ``server_bytes_per_s`` of one shard's host, and ``shards``. ``seed``: of the links' jitter."""

    size_bytes: float = 0.0
    links: Links = field(default_factory=Links)
    algorithm: str = "ring"
    inside: Hop = INSTANT
    server_bytes_per_s: float = inf
    shards: int = 1
    seed: int = 0
    packing: Packing | None = None

    @property
    def push_bytes(self) -> float:
        """A gradient's, on its way."""
        return self.size_bytes if self.packing is None else self.packing.push_bytes

    @property
    def pull_bytes(self) -> float:
        """Of parameters, on their way from a server."""
        packed = None if self.packing is None else self.packing.pull_bytes
        return self.size_bytes if packed is None else packed

    @property
    def pull_coding_s(self) -> float:
        """What encoding and decoding parameters takes."""
        packed = self.packing is not None and self.packing.pull_bytes is not None
        return self.coding_s if packed else 0.0

    @property
    def coding_s(self) -> float:
        """What encoding and decoding a gradient takes."""
        return 0.0 if self.packing is None else self.packing.coding_s

    @property
    def over_network(self) -> bool:
        """It is one."""
        return True

    @property
    def serving_s(self) -> float:
        """How long a push keeps the server busy."""
        return serving(self.push_bytes, self.pull_bytes, self.server_bytes_per_s, self.shards)

    def in_parts(self, parts: int) -> Network:
        """The same, crossed by one of so many equal parts of the parameters, which are never compressed."""
        return replace(self, size_bytes=self.size_bytes / parts, packing=None)

    def push_s(self, *, rank: int, number: int) -> float:
        """What the gradient of window ``number`` of ``rank`` is on its way to the server."""
        return self.coding_s + self.links.push_s(
            seed=self.seed, rank=rank, number=number, size_bytes=self.push_bytes
        )

    def pull_s(self, *, rank: int, number: int) -> float:
        """What the parameters for window ``number`` of ``rank`` are on their way from the server."""
        return self.pull_coding_s + self.links.pull_s(
            seed=self.seed, rank=rank, number=number, size_bytes=self.pull_bytes
        )

    def all_reduce_s(self, *, workers: int, number: int) -> float:
        """All-reduce ``number`` of ``workers``, from the last one's arrival. The slowest link counts."""
        hop_s = self.links.hop_s(seed=self.seed, workers=workers, number=number)
        return self._collective_s(workers, hop_s)

    def push_times_s(self, *, workers: int, windows: int) -> Floats:
        """All :meth:`push_s`, shape (windows, workers)."""
        return self.coding_s + self.links.push_times_s(
            seed=self.seed, workers=workers, windows=windows, size_bytes=self.push_bytes
        )

    def pull_times_s(self, *, workers: int, windows: int) -> Floats:
        """All :meth:`pull_s`, shape (windows, workers)."""
        return self.pull_coding_s + self.links.pull_times_s(
            seed=self.seed, workers=workers, windows=windows, size_bytes=self.pull_bytes
        )

    def all_reduce_times_s(self, *, workers: int, rounds: int) -> Floats:
        """All :meth:`all_reduce_s`, shape (rounds,)."""
        hops_s = self.links.hop_times_s(seed=self.seed, workers=workers, rounds=rounds)
        return np.array([self._collective_s(workers, hop_s) for hop_s in hops_s.tolist()])

    def _collective_s(self, workers: int, hop_s: float) -> float:
        rate = self.links.slowest_bytes_per_s(workers)
        if self.packing is not None and self.packing.gathered:
            return self.coding_s + ring_gather(workers, self.push_bytes, rate, hop_s)
        return self.coding_s + self._all_reduce_s(workers, rate, hop_s)

    def _all_reduce_s(self, workers: int, rate: float, hop_s: float) -> float:
        if self.algorithm != HIERARCHICAL:
            return ALL_REDUCES[self.algorithm](workers, self.push_bytes, rate, hop_s)
        per_node = min(workers, self.links.per_node)
        across = Hop(bytes_per_s=rate, latency_s=hop_s)
        return hierarchical(
            -(-workers // per_node), per_node, self.push_bytes, across=across, inside=self.inside
        )


def over_network(strategy: Strategy) -> Strategy:
    """``strategy``, where plain ``sync`` is by all-reduce: the workers are on several hosts."""
    if isinstance(strategy, Sync) and strategy.topology == "auto":
        return replace(strategy, topology="allreduce")
    return strategy


def network_from(table: Table, own: list[Table], *, count: int, seed: int) -> Network | None:
    """What the tables ``[network]`` and ``[[links]]`` say; None if there is neither."""
    table.only(
        "size_bytes", *KEYS, "per_node", "algorithm", "inside_bytes_per_s", "inside_delay_s",
        "server_bytes_per_s", "shards", *_PACKING,
    )  # fmt: skip
    if table.empty and not own:
        return None
    algorithm = str(table.values.get("algorithm", "ring"))
    if algorithm not in ALGORITHMS:
        raise table.wrong("algorithm", algorithm, "one of " + ", ".join(ALGORITHMS))
    _check_size(table, own)
    return Network(
        size_bytes=table.number("size_bytes", above=0.0) if table.has("size_bytes") else 0.0,
        links=links_from(table, own, count=count),
        algorithm=algorithm,
        inside=Hop(
            bytes_per_s=_rate(table, "inside_bytes_per_s"),
            latency_s=table.number("inside_delay_s", low=0.0, default=0.0),
        ),
        server_bytes_per_s=_rate(table, "server_bytes_per_s"),
        shards=table.whole("shards", low=1, default=1),
        seed=seed,
        packing=_packing(table),
    )


def _packing(table: Table) -> Packing | None:
    if not table.has("push_bytes"):
        if lacking := [key for key in _PACKING if table.has(key)]:
            raise UsageError(
                f"{table.label}: {lacking[0]} is of compressed gradients, and push_bytes, which says how "
                "large one is, is not there. Give both or neither."
            )
        return None
    gathered = table.values.get("gathered", False)
    if not isinstance(gathered, bool):
        raise table.wrong("gathered", gathered, "true or false")
    return Packing(
        push_bytes=table.number("push_bytes", above=0.0),
        gathered=gathered,
        coding_s=table.number("coding_s", low=0.0, default=0.0),
        pull_bytes=table.number("pull_bytes", above=0.0) if table.has("pull_bytes") else None,
    )


def _check_size(table: Table, own: list[Table]) -> None:
    """A bandwidth says nothing without the bytes that are sent."""
    rated = [one for one in (table, *own) if any(key.endswith("bytes_per_s") for key in one.values)]
    if rated and not table.has("size_bytes"):
        raise UsageError(
            f"{rated[0].label} has a bandwidth but [network] no size_bytes: give the parameters' "
            "bytes, 4 times their number in fp32."
        )


def _rate(table: Table, key: str) -> float:
    """Bytes a second; without limit if nothing is said."""
    return table.number(key, above=0.0) if table.has(key) else inf
