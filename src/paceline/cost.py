"""What an exchange costs: the alpha-beta model of all-reduces and of a parameter server. Pure.

``workers``: N; ``size_bytes``: M, the payload; ``bytes_per_s``: B, of the slowest link it crosses;
``latency_s``: alpha, of one hop. Results in seconds.

Sources: ring, halving-doubling: Thakur, Rabenseifner, Gropp, IJHPCA 2005; double tree: Sanders, Speck,
Traeff, Parallel Computing 2009.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2


@dataclass(frozen=True, kw_only=True, slots=True)
class Hop:
    """One kind of link, as above."""

    bytes_per_s: float
    latency_s: float


def ring(workers: int, size_bytes: float, bytes_per_s: float, latency_s: float) -> float:
    """2 (N - 1) alpha + 2 (N - 1) / N M / B."""
    hops = 2 * (workers - 1)
    return hops * latency_s + hops / workers * size_bytes / bytes_per_s


def halving_doubling(
    workers: int, size_bytes: float, bytes_per_s: float, latency_s: float
) -> float:
    """2 log2 N alpha + 2 (N - 1) / N M / B."""
    share = 2 * (workers - 1) / workers
    return 2 * _levels(workers) * latency_s + share * size_bytes / bytes_per_s


def tree(workers: int, size_bytes: float, bytes_per_s: float, latency_s: float) -> float:
    """A pipelined double tree: about 2 log2 N alpha + 2 M / B."""
    if workers == 1:
        return 0.0
    return 2 * _levels(workers) * latency_s + 2 * size_bytes / bytes_per_s


ALL_REDUCES: dict[str, Callable[[int, float, float, float], float]] = {
    "ring": ring,
    "halving-doubling": halving_doubling,
    "tree": tree,
}


def hierarchical(
    nodes: int, per_node: int, size_bytes: float, *, across: Hop, inside: Hop
) -> float:
    """Reduce-scatter inside each node, all-reduce of M / g across the nodes, all-gather inside.

    ``per_node``: g, its workers, each of which has a link of its own to ``across``. The two parts
    inside take together what a ring all-reduce of g workers takes.
    """
    within_s = ring(per_node, size_bytes, inside.bytes_per_s, inside.latency_s)
    return within_s + ring(nodes, size_bytes / per_node, across.bytes_per_s, across.latency_s)


def ring_gather(workers: int, size_bytes: float, bytes_per_s: float, latency_s: float) -> float:
    """All-gather of M bytes from each worker, for what cannot be summed: (N - 1) (alpha + M / B)."""
    return (workers - 1) * (latency_s + size_bytes / bytes_per_s)


def transfer(size_bytes: float, bytes_per_s: float, latency_s: float) -> float:
    """One payload over one link: alpha + M / B."""
    return latency_s + size_bytes / bytes_per_s


def serving(push_bytes: float, pull_bytes: float, server_bytes_per_s: float, shards: int) -> float:
    """How long one push keeps a server of ``shards`` equal parts busy, in and out: 2 M / (p B) where
    both have M bytes."""
    return (push_bytes + pull_bytes) / (shards * server_bytes_per_s)


def _levels(workers: int) -> int:
    return ceil(log2(workers)) if workers > 1 else 0
