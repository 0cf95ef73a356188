"""In a group each rank sees its own gradients, and looking at them changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.runs import read_run
from verify.troupe import Troupe

pytestmark = pytest.mark.xdist_group("troupe")


@pytest.mark.parametrize("strategy", ["sync:allreduce", "sync:server"])
def test_ranks_see_their_own_and_the_bits_stay(
    troupe: Troupe, strategy: str, tmp_path: Path
) -> None:
    scene = {"strategy": strategy, "optimizer": "SGD", "steps": 6}
    blind = troupe.play(scene)
    looking = troupe.play({**scene, "health": 2, "out": str(tmp_path)})
    assert [answer["bits"] for answer in blind] == [answer["bits"] for answer in looking]
    ranks = read_run(tmp_path).ranks
    assert [{look.clock for look in rank.health} for rank in ranks] == [{0, 2, 4}] * 2
    for mine, theirs in zip(ranks[0].health, ranks[1].health, strict=True):
        assert mine.parameter == theirs.parameter
        assert mine.norm != theirs.norm or mine.largest == 0
