"""Where workers push in groups: one slow member is told from one slow group.

Members of a group are held against each other round by round, as under sync; then the groups, each by
one member's own work, as workers are under the strategy between them. A member that stands out in its
group does not stand for it, so that a group is slow only if it is slow without that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from paceline.diagnose.findings import Finding
from paceline.diagnose.measured import Measured, measured
from paceline.runs import Run
from paceline.strategies import outer_of, parse_strategy

Compare = Callable[[Measured], list[Finding]]
Enough = Callable[[Measured], bool]


def in_groups(run: Run) -> bool:
    """Whether workers of ``run`` share their pushes."""
    return any(len(group) > 1 for group in run.setup.groups)


def about_groups(run: Run, compare: Compare, enough: Enough) -> list[Finding]:
    """What ``compare`` finds inside groups and between them, where there are ``enough`` windows."""
    found: list[Finding] = []
    for group in run.setup.groups:
        inside = measured(_part(run, group, "sync:server"))
        if len(group) > 1 and enough(inside):
            found += compare(inside)
    named = {rank for one in found for rank in one.ranks}
    spokesmen = [_spokesman(group, named) for group in run.setup.groups]
    outer = str(outer_of(parse_strategy(run.setup.strategy)))
    between = measured(_part(run, spokesmen, outer))
    if len(spokesmen) > 1 and enough(between):
        found += [_of_group(one, run.setup.groups) for one in compare(between)]
    return found


def _spokesman(group: Sequence[int], named: set[int]) -> int:
    """A member that is as the group is: its leader, or the first of whom nothing is to be said."""
    return next((rank for rank in group if rank not in named), group[0])


def _part(run: Run, ranks: Sequence[int], strategy: str) -> Run:
    """``run`` as if it had been of ``ranks`` alone."""
    changes: dict[str, Any] = {
        "strategy": strategy,
        "topology": "server",
        "world_size": len(ranks),
        "groups": (),
    }
    chosen = [
        replace(one, setup=replace(one.setup, **changes))
        for one in run.ranks
        if one.rank in ranks and one.setup is not None
    ]
    return replace(run, ranks=tuple(chosen))


def _of_group(finding: Finding, groups: Sequence[Sequence[int]]) -> Finding:
    """What was found of one member, said of the group that it stands for."""
    if len(finding.ranks) != 1:
        return finding
    rank = finding.ranks[0]
    group = next(one for one in groups if rank in one)
    if len(group) == 1:
        return finding
    name = f"the group of ranks {', '.join(map(str, group))}"
    cause = "slow-group" if finding.cause == "slow-rank" else finding.cause
    return replace(
        finding, cause=cause, ranks=tuple(group),
        sentence=finding.sentence.replace(f"Rank {rank}", name[0].upper() + name[1:]),
        evidence=("its members are equally slow, against the other groups", *finding.evidence),
        action=finding.action.replace(f"Rank {rank}", name.capitalize()).replace(f"rank {rank}", name),
    )  # fmt: skip
