"""Links: how long what a worker sends or fetches is on the way, each time anew.

    time = delay_s + jitter_s * Exp(1) + size / bytes_per_s

Every time is a function of (seed, rank, number, size) alone, ``number`` being which of the worker's
windows it belongs to: the random numbers come from a counter. So emulation, simulation and virtual time
meet the same network. Knows no strategy, and nothing of who waits for what is on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from paceline.errors import UsageError
from paceline.simulate.draws import BLOCK_STEPS, Floats, link_draws, link_draws_as_lists
from paceline.simulate.tables import Table

KEYS = ("delay_s", "jitter_s", "bytes_per_s")
_PUSH, _PULL, _COLLECTIVE = 0, 1, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """``delay_s``: one way; ``jitter_s``: mean of what exponentially comes on top, each time anew."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = inf


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnLink:
    """The link of one ``rank``, or of every worker of one ``node``."""

    rank: int | None = None
    node: int | None = None
    link: Link

    def first_rank(self, per_node: int) -> int:
        """The lowest rank that it is the link of."""
        return (self.node or 0) * per_node if self.rank is None else self.rank


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """``every``: of all workers but those that have their ``own``; a rank's counts before its node's.

    ``per_node``: workers of a node; rank r is on node r // per_node.
    """

    every: Link = Link()
    own: tuple[OwnLink, ...] = ()
    per_node: int = 1

    def of(self, rank: int) -> Link:
        """The link of ``rank``."""
        node = rank // self.per_node
        of_node = [one.link for one in self.own if one.node == node]
        of_rank = [one.link for one in self.own if one.rank == rank]
        return [self.every, *of_node, *of_rank][-1]

    @property
    def highest_rank(self) -> int:
        """The highest rank that is spoken of; -1 if none is."""
        return max((one.first_rank(self.per_node) for one in self.own), default=-1)

    # ------------------------------------------------------------------------------- one time

    def push_s(self, *, seed: int, rank: int, number: int, size_bytes: float) -> float:
        """Seconds that the push of window ``number`` (0, 1, ...) of ``rank`` is on its way."""
        return self._way_s(seed, rank, number, size_bytes, _PUSH)

    def pull_s(self, *, seed: int, rank: int, number: int, size_bytes: float) -> float:
        """Seconds that the parameters for window ``number`` of ``rank`` are on their way."""
        return self._way_s(seed, rank, number, size_bytes, _PULL)

    def hop_s(self, *, seed: int, workers: int, number: int) -> float:
        """The latency of a hop in collective ``number``: the slowest worker's. Its jitter is drawn
        once a collective and lasts for it."""
        return max(
            self.of(rank).delay_s + self.of(rank).jitter_s * _draw(seed, rank, number, _COLLECTIVE)
            for rank in range(workers)
        )

    # --------------------------------------------------- all times, equal to those bit for bit

    def push_times_s(self, *, seed: int, workers: int, windows: int, size_bytes: float) -> Floats:
        """Shape (windows, workers)."""
        return self._ways_s(seed, workers, windows, size_bytes, _PUSH)

    def pull_times_s(self, *, seed: int, workers: int, windows: int, size_bytes: float) -> Floats:
        """Shape (windows, workers)."""
        return self._ways_s(seed, workers, windows, size_bytes, _PULL)

    def hop_times_s(self, *, seed: int, workers: int, rounds: int) -> Floats:
        """Shape (rounds,)."""
        slowest_s: Floats = self._ways_s(seed, workers, rounds, 0.0, _COLLECTIVE).max(axis=1)
        return slowest_s

    def slowest_bytes_per_s(self, workers: int) -> float:
        """Of the links of the first ``workers`` ranks."""
        return min(self.of(rank).bytes_per_s for rank in range(workers))

    def _way_s(self, seed: int, rank: int, number: int, size_bytes: float, what: int) -> float:
        link = self.of(rank)
        extra = _draw(seed, rank, number, what)
        return link.delay_s + link.jitter_s * extra + size_bytes / link.bytes_per_s

    def _ways_s(
        self, seed: int, workers: int, windows: int, size_bytes: float, what: int
    ) -> Floats:
        times_s = np.empty((windows, workers))
        for rank in range(workers):
            link = self.of(rank)
            extra = _draws(seed, rank, windows, what) if link.jitter_s else 0.0
            times_s[:, rank] = link.delay_s + link.jitter_s * extra + size_bytes / link.bytes_per_s
        return times_s


def _draw(seed: int, rank: int, number: int, what: int) -> float:
    block, within = divmod(number, BLOCK_STEPS)
    return link_draws_as_lists(seed, rank, block)[within][what]


def _draws(seed: int, rank: int, windows: int, what: int) -> Floats:
    blocks = range(-(-windows // BLOCK_STEPS))
    parts = [link_draws(seed, rank, block)[:, what] for block in blocks]
    return np.concatenate([np.empty(0), *parts])[:windows]


# -------------------------------------------------------------------------------------- the file


def links_from(network: Table, own: list[Table], *, count: int) -> Links:
    """What the table ``[network]`` says of all links, and the tables ``[[links]]`` of some."""
    every = _link(network, Link())
    links = Links(every=every, per_node=network.whole("per_node", low=1, default=1))
    for table in own:
        found = _own_link(table, links, count)
        if any((found.rank, found.node) == (one.rank, one.node) for one in links.own):
            key = "rank" if found.node is None else "node"
            raise table.wrong(key, getattr(found, key), f"each {key} once", "Join the two entries.")
        links = replace(links, own=(*links.own, found))
    return links


def _own_link(table: Table, links: Links, count: int) -> OwnLink:
    table.only("rank", "node", *KEYS)
    if table.has("rank") == table.has("node"):
        raise UsageError(f"{table.label}: expected either rank or node, and not both.")
    link = _link(table, links.every)
    if table.has("rank"):
        return OwnLink(rank=table.whole("rank", low=0, high=count - 1), link=link)
    last = (count - 1) // links.per_node
    return OwnLink(node=table.whole("node", low=0, high=last), link=link)


def _link(table: Table, otherwise: Link) -> Link:
    """What ``table`` does not say is as in ``otherwise``."""
    rate = otherwise.bytes_per_s
    return Link(
        delay_s=table.number("delay_s", low=0.0, default=otherwise.delay_s),
        jitter_s=table.number("jitter_s", low=0.0, default=otherwise.jitter_s),
        bytes_per_s=table.number("bytes_per_s", above=0.0) if table.has("bytes_per_s") else rate,
    )
