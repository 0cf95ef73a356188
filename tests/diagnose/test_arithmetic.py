"""The formulas against naive ones: tails, runs, and what a change would save."""

from __future__ import annotations

from itertools import combinations, product
from math import inf

import numpy as np
import pytest

from paceline.diagnose.chance import (
    binomial_tail,
    clustering,
    hypergeometric_tail,
    longest_run,
)
from paceline.diagnose.pace import others_s, pace_s
from paceline.strategies import SSP, Async, Backup, Sync


@pytest.mark.parametrize(("seen", "trials", "chance"), [(0, 5, 0.3), (3, 8, 0.25), (8, 8, 0.5)])
def test_the_binomial_tail_is_the_share_of_all_outcomes(seen, trials, chance):
    share = sum(
        chance ** sum(flags) * (1 - chance) ** (trials - sum(flags))
        for flags in product((0, 1), repeat=trials)
        if sum(flags) >= seen
    )
    assert binomial_tail(seen, trials, chance) == pytest.approx(share)


def test_the_hypergeometric_tail_is_the_share_of_all_draws():
    draws = list(combinations(range(9), 4))
    share = sum(len({0, 1, 2} & set(draw)) >= 2 for draw in draws) / len(draws)
    assert hypergeometric_tail(2, 4, 3, 9) == pytest.approx(share)


def test_runs_of_flags():
    flags = [False] * 10 + [True] * 5 + [False] * 4 + [True]
    assert longest_run(flags) == (10, 5)
    assert longest_run([False]) == (0, 0)
    assert clustering([False] * 20 + [True] * 20) < 0.2
    assert clustering([False, True] * 20) > 1.5
    assert clustering([True] * 5) == 1.0


def test_the_pace_of_each_strategy():
    own_s = np.full((300, 4), 1.0)
    own_s[:, 2] = 4.0
    assert pace_s(Sync(), own_s) == pytest.approx(4.0)
    assert pace_s(Sync(), own_s, 0.5) == pytest.approx(4.5)
    assert pace_s(SSP(staleness=3), own_s) == pytest.approx(4.0, rel=0.02)
    assert pace_s(Backup(spares=1), own_s) == pytest.approx(4 / 3, rel=0.02)
    assert pace_s(Async(), own_s) == pytest.approx(4 / 3.25)
    assert pace_s(SSP(staleness=inf), own_s) == pace_s(Async(), own_s)


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("together", [True, False])
def test_the_others_are_all_but_oneself(workers, together):
    own_s = np.random.default_rng(workers).integers(0, 5, (20, workers)).astype(float)
    found = others_s(own_s, together=together)
    for k, i in product(range(20), range(workers)):
        rest = [own_s[k, j] for j in range(workers) if j != i]
        every = [own_s[r, j] for r in range(20) for j in range(workers) if j != i]
        assert found[k, i] == np.median(rest if together else every)
