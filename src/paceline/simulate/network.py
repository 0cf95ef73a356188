"""What a simulated exchange crosses: each worker's link, and the server's. Only says what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from paceline.cost import ALL_REDUCES, serving, transfer
from paceline.simulate.tables import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """``size_bytes``: the parameters'. ``link_bytes_per_s`` and ``latency_s``: of each worker's link.
    ``algorithm``: of the all-reduce; ``server_bytes_per_s`` of one shard's host, and ``shards``."""

    size_bytes: float
    link_bytes_per_s: float = inf
    latency_s: float = 0.0
    algorithm: str = "ring"
    server_bytes_per_s: float = inf
    shards: int = 1

    def all_reduce_s(self, workers: int) -> float:
        """An all-reduce of the gradient."""
        cost = ALL_REDUCES[self.algorithm]
        return cost(workers, self.size_bytes, self.link_bytes_per_s, self.latency_s)

    @property
    def transfer_s(self) -> float:
        """A gradient's way to the server, or the parameters' way back."""
        return transfer(self.size_bytes, self.link_bytes_per_s, self.latency_s)

    @property
    def serving_s(self) -> float:
        """How long a push keeps the server busy."""
        return serving(self.size_bytes, self.server_bytes_per_s, self.shards)


def network_from(table: Table) -> Network | None:
    """What the table ``[network]`` says; None if there is none."""
    table.only(
        "size_bytes", "link_bytes_per_s", "latency_s", "algorithm", "server_bytes_per_s", "shards"
    )
    if table.empty:
        return None
    algorithm = str(table.values.get("algorithm", "ring"))
    if algorithm not in ALL_REDUCES:
        raise table.wrong("algorithm", algorithm, "one of " + ", ".join(ALL_REDUCES))
    return Network(
        size_bytes=table.number("size_bytes", above=0.0),
        link_bytes_per_s=_rate(table, "link_bytes_per_s"),
        latency_s=table.number("latency_s", low=0.0, default=0.0),
        algorithm=algorithm,
        server_bytes_per_s=_rate(table, "server_bytes_per_s"),
        shards=table.whole("shards", low=1, default=1),
    )


def _rate(table: Table, key: str) -> float:
    """Bytes a second; without limit if nothing is said."""
    return table.number(key, above=0.0) if table.has(key) else inf
