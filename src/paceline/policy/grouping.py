"""Which workers are a group, where groups are synchronous inside: those of a node, or so many each.

The same answer on every rank, from what all of them said. Knows no hosts, only what they call themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import UsageError
from paceline.strategies import Strategy, is_joint

Groups = tuple[tuple[int, ...], ...]


def check_rounds(groups: Groups, strategy: Strategy) -> None:
    """Raises UsageError for unequal groups whose pushes join in rounds."""
    sizes = sorted({len(group) for group in groups})
    if is_joint(strategy) and len(sizes) > 1:
        raise UsageError(
            f"{strategy} and groups of {' and '.join(map(str, sizes))} workers cannot work together: a round "
            "has equal shares. Use hybrid:ssp:1, or nodes with equally many workers."
        )


def groups_by(hosts: Sequence[str], size: int | None) -> Groups:
    """Ranks by group, each group's first member its leader. ``hosts``: where each rank is; ``size``:
    of a group, None for all workers of a node.

    Raises UsageError for a ``size`` that does not divide the workers or would join two hosts.
    """
    if size is None:
        return tuple(
            tuple(rank for rank, host in enumerate(hosts) if host == one)
            for one in dict.fromkeys(hosts)
        )
    if size < 1 or len(hosts) % size:
        raise UsageError(
            f"group_size={size} and {len(hosts)} workers cannot work together: groups are of equal "
            f"size. Use a divisor of {len(hosts)}."
        )
    groups = tuple(tuple(range(at, at + size)) for at in range(0, len(hosts), size))
    for group in groups:
        if len({hosts[rank] for rank in group}) > 1:
            raise UsageError(
                f"group_size={size}: ranks {', '.join(map(str, group))} are on different hosts, and "
                "members of a group share one. Leave group_size out: a group is then a node."
            )
    return groups
