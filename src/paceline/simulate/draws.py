"""Random numbers by counter: each is a function of (seed, rank, step) alone, whoever asks and when.

Philox (Salmon et al., SC 2011) turns a counter into numbers. Knows no cluster; keeps no state.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BLOCK_STEPS = 256
_WORDS_PER_STEP = 4
_STREAM_STEPS, _STREAM_GROUPS = 0, 1
"""Third word of the counter: each kind of event draws from a stream of its own."""


def step_draws(seed: int, rank: int, block: int) -> tuple[Floats, Floats]:
    """Exp(1) and uniform [0, 1) numbers of the ``BLOCK_STEPS`` steps of ``block``.

    A block at a time, because that makes one call cheap and leaves no second way to compute the
    same number.
    """
    counter = np.array([block * BLOCK_STEPS, rank, _STREAM_STEPS, 0], dtype=np.uint64)
    bits = np.random.Philox(counter=counter, key=_key(seed))
    raw = bits.random_raw(BLOCK_STEPS * _WORDS_PER_STEP).reshape(BLOCK_STEPS, _WORDS_PER_STEP)
    uniform = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return -np.log1p(-uniform[:, 0]), uniform[:, 1]


@lru_cache(maxsize=256)
def step_draws_as_lists(seed: int, rank: int, block: int) -> tuple[list[float], list[float]]:
    """:func:`step_draws`, for those who want one number at a time."""
    extra, chance = step_draws(seed, rank, block)
    return extra.tolist(), chance.tolist()


@lru_cache(maxsize=1024)
def chosen(seed: int, group: int, *, count: int, of: int) -> tuple[int, ...]:
    """``count`` different numbers below ``of``: those whose draws in ``group`` are the smallest."""
    counter = np.array([group * of, 0, _STREAM_GROUPS, 0], dtype=np.uint64)
    raw = np.random.Philox(counter=counter, key=_key(seed)).random_raw(of)
    return tuple(np.argsort(raw, kind="stable")[:count].tolist())


@lru_cache(maxsize=16)
def _key(seed: int) -> npt.NDArray[np.uint64]:
    return np.asarray(np.random.SeedSequence(seed).generate_state(2, np.uint64), dtype=np.uint64)
