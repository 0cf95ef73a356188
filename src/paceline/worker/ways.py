"""What a worker's windows cross in an emulated cluster: links to a server, or a collective.

Under all-reduce (and where replicas meet) everyone is on the way for the collective's time before it
enters it, so that it ends that long after the last has come; so are all of a group, for its push. Says
how long (as :mod:`paceline.simulate.network` does), sleeps never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from paceline.compression import Compression, Int8, Method, Sign, TopK, at
from paceline.payloads import Parameters, push_bytes
from paceline.simulate.network import Network, Packing
from paceline.strategies import Strategy, Sync, drifts, fragments_of

WaySeconds = Callable[[int], float]
"""How long a way takes in the worker's window number 0, 1, ..."""

WARMED_UP = 2**62
"""A window after every warm-up."""


def _nothing_s(_: int) -> float:
    return 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ways:
    """``pull_s``: before a window starts; ``push_s``: when it is computed, ``part_s`` where only a fragment
    of the parameters meets. ``serving_s``: how long one push keeps the server busy."""

    pull_s: WaySeconds = _nothing_s
    push_s: WaySeconds = _nothing_s
    part_s: WaySeconds = _nothing_s
    serving_s: float = 0.0


def ways_of(
    network: Network | None,
    strategy: Strategy,
    *,
    rank: int,
    workers: int,
    compression: Compression | None = None,
    parameters: Parameters = (),
) -> Ways:
    """The ways of ``rank`` (in a group: of the one that pushes for it) where ``strategy`` has a topology
    if it has a choice of one. ``compression``: of the gradients of ``parameters``."""
    if network is None or workers == 1:
        return Ways()
    at = _compressed(network, compression, parameters)
    if drifts(strategy):  # parameters, which nothing compresses
        whole, part = network.in_parts(1), network.in_parts(fragments_of(strategy))
        return Ways(
            push_s=lambda number: whole.all_reduce_s(workers=workers, number=number),
            part_s=lambda number: part.all_reduce_s(workers=workers, number=number),
        )
    if isinstance(strategy, Sync) and strategy.topology == "allreduce":
        return Ways(push_s=lambda number: at(number).all_reduce_s(workers=workers, number=number))
    return Ways(
        pull_s=lambda number: at(number).pull_s(rank=rank, number=number),
        push_s=lambda number: at(number).push_s(rank=rank, number=number),
        serving_s=at(WARMED_UP).serving_s,
    )


def _compressed(
    network: Network, compression: Compression | None, parameters: Parameters
) -> Callable[[int], Network]:
    """The network as a worker's window number 0, 1, ... meets it. What the file says of compressed
    gradients counts; else they are smaller by as much as those of ``parameters``."""
    if compression is None or network.packing is not None:
        return lambda _: network

    @cache
    def packed(method: Method | None, pull: Method | None) -> Network:
        share, came = (push_bytes(one, parameters) / whole for one in (method, pull))
        packing = Packing(
            push_bytes=network.size_bytes * share,
            gathered=isinstance(method, TopK | Int8 | Sign) and share < 1,
            pull_bytes=network.size_bytes * came,
        )
        return replace(network, packing=packing)

    whole, pulls = push_bytes(None, parameters), compression.of_pulls()
    return lambda number: packed(
        _at(compression, number), None if pulls is None else _at(pulls, number)
    )


def _at(compression: Compression, number: int) -> Method | None:
    """What holds in window ``number``."""
    warmup = compression.warmup
    return at(compression, min(1.0, number / warmup) if warmup else 1.0)
