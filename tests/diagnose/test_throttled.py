"""A slow worker whose clock is low is throttled; a low clock alone is no finding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diagnose.fabricated import Case, fabricated
from paceline.diagnose.verdict import diagnose
from paceline.trace import Clocks


def clocked(hz, *, slow=2, phase="forward", device="cuda:0", reasons=(), throttled=(0, 0)):
    """Four workers of which ``slow`` is so; ``hz[rank]``: its clocks, sample by sample."""
    run = fabricated(Case(faults=((slow, phase, np.full(120, 0.05)),)))
    ranks = tuple(
        replace(
            rank,
            clocks=tuple(
                Clocks(
                    time_s=100.0 + 5 * k, device=device, hz=one, top_hz=2e9,
                    throttled=throttled[k > 0] if rank.rank == slow else 0,
                    reasons=reasons if rank.rank == slow else (),
                )
                for k, one in enumerate(hz[rank.rank])
            ),
        )
        for rank in run.ranks
    )  # fmt: skip
    return diagnose(replace(run, ranks=ranks)).findings


FULL = [1.9e9] * 9


def test_a_clock_below_the_others_is_said_with_the_reason():
    (finding,) = clocked([FULL, FULL, [1.1e9] * 9, FULL], reasons=("too hot (driver)",))
    assert (finding.cause, finding.ranks, finding.phase) == ("throttled", (2,), "forward")
    assert finding.sentence.startswith(
        "Rank 2 is throttled: its clock is 1.10 GHz, the others' 1.90 GHz (too hot (driver)). It costs "
    )
    assert "cooling" in finding.action


def test_a_clock_below_its_own_before_is_said_where_the_others_are_unknown():
    falling = [1.9e9] * 5 + [1.3e9] * 4
    (finding,) = clocked([[], [], falling, []], device="cpu", throttled=(1, 8))
    assert "its clock is 1.30 GHz, before 1.90 GHz" in finding.sentence
    assert "throttled itself 7 times" in finding.sentence


@pytest.mark.parametrize(
    "hz",
    [[FULL] * 4, [[1.1e9] * 9, FULL, FULL, FULL], [[], [], [], []], [[1.9e9] * 5 + [1e9] * 4] * 4],
)
def test_without_a_low_clock_it_is_merely_slow(hz):
    (finding,) = clocked(hz)
    assert (finding.cause, finding.ranks) == ("slow-rank", (2,))


def test_a_slow_loader_is_not_the_clocks_fault():
    (finding,) = clocked([FULL, FULL, [1.1e9] * 9, FULL], phase="data")
    assert finding.cause == "slow-rank"
