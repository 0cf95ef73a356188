"""Who is named on synthetic matrices: always the one that was made slow, never anybody in clean ones."""

from itertools import product

import numpy as np
import pytest

from paceline.measure.naming import name_slow

SIZES = (3, 4, 5, 8, 16, 33)
NOISES = (0.01, 0.05, 0.15, 0.3)
SEEDS = range(6)


def matrices(seed, ranks, noise, *, passes=4, lasting=0.05, tails=False):
    """Costs of clean links: each differs a little for good, and every measurement by ``noise``."""
    rng = np.random.default_rng([seed, ranks, round(noise * 1000)])
    links = np.exp(lasting * rng.normal(size=(ranks, ranks)))
    each = np.exp(noise * rng.normal(size=(passes, ranks, ranks)))
    if tails:
        each *= 1 + 3 * (rng.random(each.shape) < 0.02)
    return 1e-8 * links * each


def found(passes, considered=None):
    return [(one.kind, one.rank, one.to) for one in name_slow(passes, considered).culprits]


@pytest.mark.parametrize("tails", [False, True])
def test_nobody_in_clean_matrices(tails):
    accused = [
        (ranks, noise, seed)
        for ranks, noise, seed in product((2, *SIZES), NOISES, range(12))
        if found(matrices(seed, ranks, noise, tails=tails))
    ]
    assert not accused


@pytest.mark.parametrize("factor", [2.5, 5, 20])
def test_a_port(factor):
    wrong = []
    for ranks, noise, seed in product(SIZES, (0.01, 0.05, 0.1), SEEDS):
        passes = matrices(seed, ranks, noise)
        rank = seed % ranks
        passes[:, rank] *= factor
        passes[:, :, rank] *= factor
        if found(passes) != [("port", rank, None)]:
            wrong.append((ranks, noise, seed, found(passes)))
    assert not wrong


@pytest.mark.parametrize(("kind", "axis"), [("out", 1), ("in", 2)])
def test_one_direction_of_a_port(kind, axis):
    for ranks, noise, seed in product(SIZES, (0.01, 0.05, 0.1), SEEDS):
        passes = matrices(seed, ranks, noise)
        rank = seed % ranks
        np.moveaxis(passes, axis, 0)[rank] *= 3
        assert found(passes) == [(kind, rank, None)], (ranks, noise, seed)


def test_one_link():
    for ranks, noise, seed in product(SIZES[1:], (0.01, 0.05, 0.1), SEEDS):
        passes = matrices(seed, ranks, noise)
        rank, to = seed % ranks, (seed + 1) % ranks
        passes[:, rank, to] *= 3
        assert found(passes) == [("link", rank, to)], (ranks, noise, seed)


def test_a_port_and_a_link_elsewhere():
    for ranks, seed in product((8, 16), SEEDS):
        passes = matrices(seed, ranks, 0.05)
        passes[:, 2] *= 4
        passes[:, :, 2] *= 4
        passes[:, 5, 6] *= 3
        assert sorted(found(passes)) == [("link", 5, 6), ("port", 2, None)]


def test_two_ports_of_eight():
    for seed in SEEDS:
        passes = matrices(seed, 8, 0.05)
        for rank in (1, 6):
            passes[:, rank] *= 4
            passes[:, :, rank] *= 4
        assert sorted(found(passes)) == [("port", 1, None), ("port", 6, None)]


def test_slow_in_one_pass_only_is_not_slow():
    passes = matrices(0, 6, 0.02)
    passes[1, 3] *= 10
    assert not found(passes)


def test_links_that_are_slow_by_design_are_left_out():
    """Two nodes of four: across is slower than inside; one rank's links across are slower still."""
    nodes = np.arange(8) // 4
    across = nodes[:, None] != nodes[None, :]
    passes = np.where(across, 10, 1) * matrices(1, 8, 0.05)
    assert not found(passes, across)
    assert not found(passes, ~across)
    passes[:, 5] *= np.where(across[5], 4, 1)
    passes[:, :, 5] *= np.where(across[5], 4, 1)
    assert found(passes, across) == [("port", 5, None)]


def test_it_abstains_where_there_is_nothing_to_compare_with():
    assert "not two links" in name_slow(np.full((3, 1, 1), 1.0)).doubt
    rng = np.random.default_rng(0)
    all_differ = np.repeat(np.exp(np.linspace(0, 9, 36)).reshape(1, 6, 6), 3, axis=0)
    assert "differ so much" in name_slow(all_differ).doubt
    most = matrices(0, 8, 0.02)
    most[:, :6] *= 5
    assert "none can pass" in name_slow(most).doubt
    noisy = np.exp(2 * rng.normal(size=(3, 6, 6)))
    assert "differ so much" in name_slow(noisy).doubt


def test_of_two_ranks_only_a_direction_can_be_named():
    passes = matrices(0, 2, 0.02)
    passes[:, 0, 1] *= 4
    assert found(passes) == [("link", 0, 1)]


def test_the_factor_is_the_one_that_was_made():
    passes = matrices(3, 8, 0.02)
    passes[:, 4] *= 5
    passes[:, :, 4] *= 5
    naming = name_slow(passes)
    assert naming.culprits[0].factor == pytest.approx(5, rel=0.1)
    assert naming.healthy == pytest.approx(1e-8, rel=0.1)
