"""Who computes what where no coordinator runs: the same answer on every rank, from numbers all know.

The collective plane needs every rank to enter the same exchanges. So this depends on nothing that
one rank alone could know, and agrees with what the coordinator deals under ``sync:server``.
Update ``u`` of a pass joins batches ``u*N*k .. (u+1)*N*k - 1``; batch ``j`` is rank ``j mod N``'s.
"""

from __future__ import annotations


def window_batches(
    *, rank: int, world_size: int, window: int, update: int, total: int | None
) -> tuple[int, ...]:
    """The batches of ``rank``'s window in ``update`` (0, 1, ... within the pass); () if none.

    ``window``: micro-batches per push. ``total``: batches of the pass, None while unknown.
    """
    assert 0 <= rank < world_size
    first = update * world_size * window + rank
    stop = first + world_size * window
    return tuple(range(first, stop if total is None else min(stop, total), world_size))


def updates_in_pass(*, world_size: int, window: int, total: int) -> int:
    """How many updates a pass of ``total`` batches takes, a last partial one included."""
    return -(-total // (world_size * window))


def batches_before(*, world_size: int, window: int, update: int, total: int | None) -> int:
    """How many batches of the pass the updates before ``update`` joined, all ranks together."""
    whole = update * world_size * window
    return whole if total is None else min(whole, total)
