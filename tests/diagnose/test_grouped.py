"""Groups (hybrid): a slow member is named, and a slow group, and neither for the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diagnose.fabricated import Case, added, fabricated
from paceline.diagnose.verdict import diagnose
from paceline.runs import Run

GROUPS = ((0, 1), (2, 3))


def hybrid(*groups: Run) -> Run:
    """Runs of two workers each as the groups of one run."""
    ranks = []
    for number, group in enumerate(groups):
        for one in group.ranks:
            setup = replace(
                one.setup, strategy="hybrid:async", topology="hybrid", world_size=4, groups=GROUPS
            )
            ranks.append(replace(one, rank=2 * number + one.rank, setup=setup))
    return replace(groups[0], ranks=tuple(ranks))


def group(seed: int, *faults: tuple[int, str, np.ndarray]) -> Run:
    return fabricated(Case(workers=2, plane="server", seed=seed, faults=faults))


def slow(pattern: str, seed: int) -> np.ndarray:
    return added(np.random.default_rng(seed), pattern, 0.05, 120)


@pytest.mark.parametrize("seed", range(3))
def test_equal_groups_are_well(seed: int) -> None:
    assert diagnose(hybrid(group(seed), group(seed + 10))).status == "well"


@pytest.mark.parametrize("pattern", ["persistent", "transient"])
@pytest.mark.parametrize("member", [0, 1])
def test_a_slow_member_is_named_and_not_its_group(pattern: str, member: int) -> None:
    run = hybrid(group(1), group(2, (member, "forward", slow(pattern, 3))))
    (finding,) = diagnose(run).findings
    assert (finding.cause, finding.ranks) == ("slow-rank", (2 + member,))
    assert finding.phase == "forward"
    assert finding.pattern == pattern


def test_a_slow_group_is_named_and_none_of_its_members() -> None:
    late = slow("persistent", 4)
    run = hybrid(group(1), group(2, (0, "forward", late), (1, "forward", late)))
    found = diagnose(run)
    (finding,) = found.findings
    assert (finding.cause, finding.ranks) == ("slow-group", (2, 3))
    assert finding.sentence.startswith("The group of ranks 2, 3 is slow in forward")
    assert found.what_if == ()
