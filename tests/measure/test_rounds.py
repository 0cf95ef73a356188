import pytest

from paceline.measure.rounds import partner, tournament


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 9, 32, 33])
def test_every_pair_meets_once_and_nobody_is_in_two_pairs_of_a_round(ranks):
    rounds = tournament(ranks)
    pairs = [pair for one in rounds for pair in one]
    assert sorted(pairs) == [(a, b) for a in range(ranks) for b in range(a + 1, ranks)]
    assert all(len({rank for pair in one for rank in pair}) == 2 * len(one) for one in rounds)
    assert len(rounds) <= ranks


def test_partner():
    assert partner([(0, 3), (1, 2)], 2) == 1
    assert partner([(0, 3)], 1) is None
