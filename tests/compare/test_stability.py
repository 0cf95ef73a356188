"""The verdict on a loss against sync's: each word, its threshold, and what is left unsaid with few seeds."""

import random
from math import exp, inf, isnan, nan

import pytest

from paceline.compare.stability import LossShape, judged, shape_of


def falling(
    epochs=10, *, floor=0.1, per_epoch=20, noise=0.0, bump=0.0, scale=1.0, seed=0, name="loss"
):
    """Losses falling to ``floor``, ``bump`` (of the log) on top of epoch 6, white noise on the log."""
    draw = random.Random(seed)
    count = epochs * per_epoch
    samples = [100.0 * (i + 1) for i in range(count)]
    losses = []
    for i in range(count):
        loss = floor + 2.0 * exp(-4.0 * (i + 1) / count)
        rise = bump if i // per_epoch == 6 else 0.0
        losses.append(scale * loss * exp(rise + draw.gauss(0.0, noise)))
    return shape_of(
        seed=seed, name=name, samples=samples, losses=losses, passes=epochs, first=2.3
    )  # fmt: skip


SYNC = [falling(noise=0.02, seed=seed) for seed in range(5)]


def word(own, sync=SYNC):
    return judged(own, sync).word


def test_a_loss_like_syncs_is_smooth():
    assert word([falling(noise=0.02, seed=seed) for seed in range(5)]) == "SMOOTH"


def test_a_loss_above_twice_syncs_has_diverged():
    assert word([falling(scale=2.5, seed=0)]) == "DIVERGED"


def test_a_training_loss_near_0_is_not_called_diverged_for_being_a_multiple_of_syncs():
    assert str(judged([trained(0.06)], [trained(0.02)])) == "SMOOTH 98 %"


def trained(final, *, first=2.3, seed=0):
    """A training loss that falls from ``first`` to ``final``."""
    losses = [final + (first - final) * exp(-i / 10) for i in range(200)]
    samples = [16.0 * (i + 1) for i in range(200)]
    return shape_of(seed=seed, name="", samples=samples, losses=losses, passes=1, first=first)


def test_a_run_that_learnt_far_less_than_sync_is_not_smooth():
    assert str(judged([trained(1.9)], [trained(0.5)])) == "DIVERGED 22 %"


def test_one_that_learnt_somewhat_less_is_worse_if_seeds_agree():
    sync = [trained(0.5, seed=seed) for seed in range(3)]
    assert word([trained(0.8)], sync) == "worse?"
    own = [trained(0.8 + 0.01 * seed, seed=seed) for seed in range(3)]
    assert word(own, sync) == "WORSE"


def test_where_sync_itself_hardly_learnt_no_share_of_that_is_judged():
    assert str(judged([trained(2.28)], [trained(2.2)])) == "SMOOTH"


def test_a_loss_that_is_not_finite_has_diverged():
    shape = shape_of(
        seed=0, name="loss", samples=[1, 2, 3], losses=[1.0, nan, 1.0], passes=1, first=1.0
    )
    assert shape.final == inf
    assert word([shape]) == "DIVERGED"


def test_a_training_loss_that_never_fell_has_diverged():
    flat = shape_of(
        seed=0, name="", samples=[1, 2, 3], losses=[2.3, 2.31, 2.31], passes=1, first=2.3
    )  # fmt: skip
    sync = shape_of(seed=0, name="", samples=[1, 2, 3], losses=[2.3, 2.2, 2.2], passes=1, first=2.3)
    assert word([flat], [sync]) == "DIVERGED"


def test_a_rise_between_epochs_oscillates():
    found = judged([falling(bump=0.8)], SYNC)
    assert found.word == "OSCILLATES"
    assert found.rise > 0.3


def test_a_rise_no_larger_than_twice_syncs_own_does_not():
    sync = [falling(bump=0.5)]
    assert word([falling(bump=0.6)], sync) == "SMOOTH"


def test_worse_needs_several_seeds_that_agree():
    assert word([falling(scale=1.2, noise=0.02, seed=seed) for seed in range(5)]) == "WORSE"
    assert word([falling(scale=1.2)]) == "worse?"
    scales = [0.8, 1.6, 1.0, 1.5]
    apart = [falling(scale=scale, seed=seed) for seed, scale in enumerate(scales)]
    assert word(apart) == "worse?"


def test_noise_alone_is_harmless():
    assert word([falling(noise=0.1, seed=seed) for seed in range(5)]) == "NOISY"


def test_seeds_are_paired_and_losses_of_different_names_are_not_compared():
    assert judged([falling(seed=9)], SYNC) is None
    assert judged([falling(name="")], SYNC) is None


@pytest.mark.parametrize("losses", [[], [1.0], [1.0, 0.0], [1.0, -2.0]])
def test_too_few_or_no_logarithm(losses):
    samples = list(range(1, len(losses) + 1))
    assert shape_of(seed=0, name="", samples=samples, losses=losses, passes=1, first=1.0) is None


def test_one_evaluation_an_epoch_will_do():
    shape = falling(per_epoch=1)
    assert len(shape.medians) == 10
    assert shape.rise == 0.0


def test_an_empty_shape_has_no_final_loss():
    assert isnan(
        LossShape(seed=0, name="", medians=(), noise=0.0, first=1.0, finite=True).final
    )  # fmt: skip
